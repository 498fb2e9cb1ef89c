// Rules about includes: layers, cycles between folders, and who uses a library.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/source_files.h"

namespace {

using namespace orrery::testing;
using Strings = std::vector<std::string>;

// A file includes from its own layer and earlier ones. engine and cuda share the first layer.
const std::vector<Strings> layers{
    {"engine/types", "engine/math", "engine/system", "engine/settings", "engine/attention_formula"},
    {"cuda"},
    {"engine"},
    {"nn"},
    {"models"},
    {"examples"}};

Strings includes(const File& file) {
  static const std::regex form(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  Strings result;
  for (const std::string& line : lines_of(file.text))
    if (std::smatch match; std::regex_search(line, match, form)) result.push_back(match[1]);
  return result;
}

int layer_of(const std::string& path) {  // layer of the longest matching folder
  int found = -1;
  size_t length = 0;
  for (size_t i = 0; i < layers.size(); ++i)
    for (const std::string& folder : layers[i])
      if (path.starts_with(folder + "/") && folder.size() > length) found = static_cast<int>(i), length = folder.size();
  return found;
}

// Returns a message for each file that calls an algorithm of the standard library, and includes <algorithm> neither
// itself nor through its header. Other headers of some versions include it, of others they do not. Without min, max,
// copy, fill and equal, which all versions of <string> and <vector> declare.
Strings algorithm_violations(const Files& files) {
  static const std::regex call(
      "\\bstd::(ranges::)?((all|any|none)_of|for_each|count|count_if|find|find_(if|if_not|end|first_of)|adjacent_find|"
      "search|copy_if|transform|replace|replace_if|remove|remove_if|unique|reverse|rotate|shuffle|sort|stable_sort|"
      "partial_sort|nth_element|is_sorted|upper_bound|equal_range|binary_search|merge|includes|[a-z]+_heap|clamp|"
      "set_(union|intersection|[a-z_]*difference)|minmax|(max|min|minmax)_element|next_permutation|partition|"
      "stable_partition|generate)\\(");
  const auto has_it = [](const Strings& headers) { return std::ranges::count(headers, "algorithm") > 0; };
  std::map<std::string, bool> by_path;
  for (const File& file : files)
    if (file.code()) by_path[file.path] = has_it(includes(file));
  Strings result;
  for (const File& file : files) {
    if (!file.code() || by_path[file.path]) continue;
    const auto header = by_path.find(file.path.substr(0, file.path.rfind('.')) + ".h");
    if (header != by_path.end() && header->second) continue;
    for (const std::string& line : lines_of(file.text))
      if (std::smatch match; line.find("std::") != std::string::npos && std::regex_search(line, match, call)) {
        result.push_back(file.path + " calls " + match[0].str() + ") without #include <algorithm>");
        break;
      }
  }
  return result;
}

// Returns the folder of a file or, unless `whole`, at most the first two folders of its path.
std::string folder_of(const std::string& path, bool whole) {
  size_t end = path.rfind('/');
  if (const size_t second = path.find('/', path.find('/') + 1); !whole && second < end) end = second;
  return path.substr(0, end);
}

// Folders by level: each includes only from lower levels. Folders in a cycle, and those above a
// cycle, have no level and are in without_level.
struct FolderLevels {
  std::vector<Strings> levels;
  Strings without_level;
};
FolderLevels levels_of(const Files& files, bool whole) {
  std::map<std::string, std::set<std::string>> below;  // per folder
  std::set<std::string> paths;
  for (const File& file : files) paths.insert(file.path);
  for (const File& file : files) {
    if (!file.code() || layer_of(file.path) < 0) continue;
    const std::string folder = folder_of(file.path, whole);
    std::set<std::string>& its = below[folder];
    for (const std::string& header : includes(file))
      if (paths.contains(header) && folder_of(header, whole) != folder) its.insert(folder_of(header, whole));
  }
  FolderLevels levels;
  std::set<std::string> assigned;
  for (bool grows = true; grows;) {
    Strings level;
    for (const auto& [folder, its] : below)
      if (!assigned.contains(folder) && std::includes(assigned.begin(), assigned.end(), its.begin(), its.end()))
        level.push_back(folder);
    assigned.insert(level.begin(), level.end());
    grows = !level.empty();
    if (grows) levels.levels.push_back(std::move(level));
  }
  for (const auto& [folder, its] : below)
    if (!assigned.contains(folder)) levels.without_level.push_back(folder);
  return levels;
}

std::string joined(const Strings& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
  return all;
}

// Returns a message for each include that breaks a rule.
Strings include_violations(const Files& files) {
  struct Owner {
    std::regex header, users;
    const char* rule;
  };
  static const std::vector<Owner> owners{
      {std::regex("^(oneapi/)?tbb(/|\\.h)"), std::regex("^engine/system/parallel\\.cpp$"),
       "only engine/system/parallel.cpp uses oneTBB"},
      {std::regex("^(cblas|f77blas|lapacke?|openblas.*)\\.h$"), std::regex("^engine/matmul/blas\\.cpp$"),
       "only engine/matmul/blas.cpp uses OpenBLAS"},
      {std::regex("^mpi\\.h$"), std::regex("^engine/distributed/mpi\\.cpp$"),
       "only engine/distributed/mpi.cpp uses MPI"},
      {std::regex("^openssl/"), std::regex("^engine/system/hash\\.cpp$"), "only engine/system/hash.cpp uses OpenSSL"},
      {std::regex("^(nlohmann/|toml\\+\\+/)"), std::regex("^(models|examples|tests)/"), "parsers stay out of the core"},
      {std::regex("^CLI/"), std::regex("^examples/orrery/"), "only the program reads a command line"},
      {std::regex("^regex$"), std::regex("^tests/((includes|language|pages|rules)_test|support/(message|text))\\.cpp$"),
       "tests/support/text.h searches; <regex> takes seconds to compile"},
      {std::regex("^doctest/"), std::regex("^tests/"), "only tests use doctest"},
      {std::regex("^tests/"), std::regex("^tests/"), "nothing outside tests includes from tests"},
      {std::regex("^iostream$"), std::regex("^(examples|tests)/"), "libraries do not print"}};
  Strings result;
  for (const File& file : files) {
    if (!file.code()) continue;
    const int layer = layer_of(file.path);
    for (const std::string& header : includes(file)) {
      const auto violation = [&](const std::string& rule) {
        result.push_back(file.path + " includes " + header + ": " + rule);
      };
      if (layer >= 0 && layer_of(header) > layer) violation("layers only look down");
      for (const Owner& owner : owners)
        if (std::regex_search(header, owner.header) && !std::regex_search(file.path, owner.users))
          violation(owner.rule);
    }
  }
  return result;
}

// nvcc compiles all files that reach engine/loops/loops.h. It supports neither vector extensions
// nor what models needs.
Strings loop_violations(const Files& files) {
  std::map<std::string, Strings> graph;
  for (const File& file : files)
    if (file.code()) graph[file.path] = includes(file);
  std::map<std::string, bool> known;
  const std::function<bool(const std::string&)> reaches = [&](const std::string& path) {
    if (path == "engine/loops/loops.h") return true;
    if (const auto at = known.find(path); at != known.end()) return at->second;
    known[path] = false;
    for (const std::string& header : graph[path])
      if (reaches(header)) return known[path] = true;
    return false;
  };
  Strings result;
  for (const File& file : files)
    for (const char* plain : {"engine/matmul", "engine/attention", "models", "cuda", "examples/orrery"})
      if (file.code() && file.below(plain) && reaches(file.path))
        result.push_back(file.path + " reaches engine/loops/loops.h, but is never compiled by nvcc");
  return result;
}

void check_none(const Strings& violations) {
  for (const std::string& violation : violations) FAIL_CHECK(violation);
  CHECK(violations.empty());
}

}  // namespace

TEST_CASE("includes: layers include only lower layers, and each library has one user") {
  check_none(include_violations(tree()));
}

TEST_CASE("includes: files with vector code do not include the loops that nvcc compiles") {
  check_none(loop_violations(tree()));
}

TEST_CASE("includes: files that call algorithms include <algorithm>") { check_none(algorithm_violations(tree())); }

// engine/README.md shows the order; if it differs, the test prints the correct order.
TEST_CASE("includes: those between folders have no cycle") {
  for (const bool whole : {true, false}) {
    const FolderLevels levels = levels_of(tree(), whole);
    CHECK_MESSAGE(levels.without_level.empty(), "a cycle is among these: ", joined(levels.without_level));
  }
  std::string order;
  size_t number = 0;
  for (const Strings& level : levels_of(tree(), false).levels)
    order += std::to_string(++number) + "  " + joined(level) + "\n";
  CHECK_MESSAGE(read(source_root / "engine/README.md").text.find("```\n" + order + "```\n") != std::string::npos,
                "engine/README.md needs these lines:\n", order);
}

TEST_CASE("includes: the rules find what they forbid") {
  const auto count = [](const auto& rule, const std::string& path, const std::string& text) {
    return rule(Files{{path, text}}).size();
  };
  CHECK(count(include_violations, "engine/a.cpp", "#include \"nn/base/module.h\"\n") == 1);
  CHECK(count(include_violations, "nn/a.cpp", "#include \"engine/tensor/tensor.h\"\n#include <vector>\n") == 0);
  CHECK(count(include_violations, "cuda/a.cuh", "#include \"engine/tensor/tensor.h\"\n") == 1);
  CHECK(count(include_violations, "cuda/a.cuh", "#include \"engine/math/scalar.h\"\n") == 0);
  CHECK(count(include_violations, "nn/a.cpp", "  # include <oneapi/tbb/parallel_for.h>\n") == 1);
  CHECK(count(include_violations, "engine/system/parallel.cpp", "#include <oneapi/tbb/parallel_for.h>\n") == 0);
  CHECK(count(include_violations, "engine/matmul/small.cpp", "#include <cblas.h>\n") == 1);
  CHECK(count(include_violations, "engine/settings/config.cpp", "#include <nlohmann/json.hpp>\n") == 1);
  CHECK(count(include_violations, "tests/examples/a_test.cpp", "#include <regex>\n") == 1);
  CHECK(count(algorithm_violations, "nn/a.cpp", "#include <vector>\nvoid f() { std::sort(a, b); }\n") == 1);
  CHECK(count(algorithm_violations, "nn/a.cpp", "auto f = std::ranges::count(a, b);\n") == 1);
  CHECK(count(algorithm_violations, "nn/a.cpp", "#include <algorithm>\nvoid f() { std::sort(a, b); }\n") == 0);
  CHECK(count(algorithm_violations, "nn/a.cpp", "#include <vector>\nauto f = std::max(a, b);\n") == 0);
  CHECK(algorithm_violations({{"nn/a.h", "#include <algorithm>\n"}, {"nn/a.cpp", "auto f = std::find(a, b, c);\n"}})
            .empty());
  const Files circle{
      {"nn/a/a.h", "#include \"nn/b/base/b.h\"\n"}, {"nn/b/base/b.h", ""}, {"nn/b/c.h", "#include \"nn/a/a.h\"\n"}};
  CHECK(levels_of(circle, true).levels == std::vector<Strings>{{"nn/b/base"}, {"nn/a"}, {"nn/b"}});
  CHECK(levels_of(circle, false).without_level == Strings{"nn/a", "nn/b"});

  const File between{"nn/kernels.h", "#pragma once\n#include \"engine/loops/loops.h\"\n"};
  CHECK(loop_violations({between, {"models/a.cpp", "#include \"nn/kernels.h\"\n"}}).size() == 1);
  CHECK(loop_violations({between, {"nn/a.cpp", "#include \"nn/kernels.h\"\n"}}).empty());
}
