// Rules that keep the tree readable, checked on its text: contents, locations of files.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/source_files.h"

namespace {

namespace fs = std::filesystem;
using namespace orrery::testing;
using Strings = std::vector<std::string>;

const fs::path& root = source_root;

// Returns lines with a forbidden pattern; each pattern applies to certain paths.
Strings text_violations(const Files& files) {
  struct Ban {
    std::regex pattern, paths;
    const char* rule;
  };
  static const std::regex everywhere(""), libraries("^(engine|nn|models|cuda)/.*\\.(h|cpp|cuh|cu)$");
  static const std::vector<Ban> bans{
      {std::regex("TOD[O]|FIXM[E]"), everywhere, "finish it or leave it out"},
      {std::regex("(^|[^\\w./])/(wor[k]|roo[t]|hom[e])/"), everywhere, "a path of one machine"},
      {std::regex("-ffast-math|-Ofast"), std::regex("CMakeLists|\\.(sh|cmake)$"),
       "masks use infinities and tests use NaN"},
      {std::regex("\\bstd::(cout|cerr|clog)\\b|\\b(printf|puts|fputs|fprintf)\\s*\\("), libraries,
       "libraries do not print"},
      {std::regex("\\b(std::exit|std::abort|abort)\\s*\\("), libraries, "libraries do not end a program"},
      {std::regex("\\b(popen|system|wordexp)\\s*\\("),
       std::regex("^(engine|nn|models|cuda|examples)/.*\\.(h|cpp|cuh|cu)$"),
       "a shell would interpret a path; start a program with a list of arguments"},
      {std::regex("\\bstd::(rand|random_device|mt19937)\\b"), libraries,
       "random numbers come from engine/math/random.h"},
      {std::regex("\\bstd::[io]?fstream\\b"), std::regex("^(engine|nn|models|cuda|examples)/.*\\.(h|cpp|cuh|cu)$"),
       "engine/system/files.h reads and writes files; a stream does not report errors"},
      {std::regex("\\b(flock|prctl|memfd_create|posix_spawn|fork|execv|waitpid|sigaction)\\s*\\(|::(signal|kill)\\s*\\("
                  "|\"/proc|"
                  "cgroup"),
       std::regex("^(engine/(?!system/)|nn/|models/|cuda/|examples/).*\\.(h|cpp|cuh|cu)$"),
       "only engine/system uses processes, signals, locks and /proc"},
      {std::regex("\\bdump\\(|[jJ]son::parse\\("),
       std::regex("^(models/(?!formats/json\\.cpp)|examples/orrery/).*\\.(h|cpp)$"),
       "json_text and parse_json do that; in each file it takes a second to compile"},
      {std::regex("^.{121,}$"), std::regex("\\.(h|cpp|cuh|cu|sh)$|CMakeLists"), "120 columns"},
      {std::regex("\t"), libraries, "two spaces, no tabs"}};
  Strings result;
  for (const File& file : files) {
    int number = 0;
    for (const std::string& line : lines_of(file.text)) {
      ++number;
      for (const Ban& ban : bans)
        if (std::regex_search(file.path, ban.paths) && std::regex_search(line, ban.pattern))
          result.push_back(file.path + ":" + std::to_string(number) + ": " + ban.rule + ": " + line);
    }
  }
  return result;
}

Strings form_violations(const Files& files) {
  Strings result;
  for (const File& file : files) {
    const auto count = std::count(file.text.begin(), file.text.end(), '\n');
    const bool library = file.below("engine") || file.below("cuda") || file.below("nn") || file.below("models");
    if (file.code() && library && count > 400)
      result.push_back(file.path + ": " + std::to_string(count) + " lines; at most 400");
    if (file.header() && file.text.find("#pragma once\n") == std::string::npos)
      result.push_back(file.path + ": a header without #pragma once");
    const std::string name = fs::path(file.path).filename().string();
    for (const char* refused : {"common.", "utils.", "util.", "helpers.", "misc."})
      if (file.code() && name.starts_with(refused)) result.push_back(file.path + ": a name without a meaning");
    if (!file.text.empty() && file.text.back() != '\n') result.push_back(file.path + ": no newline at the end");
  }
  return result;
}

// Returns what remains of a block; from within the parentheses of a loop or condition, up to the end of its statement.
std::string block_in(const std::string& rest) {
  int depth = 0;
  const auto ends = [&](char c) {
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    return depth < 0 && (c == '}' || c == ';');
  };
  return {rest.begin(), std::find_if(rest.begin(), rest.end(), ends)};
}
// Finds lambdas, and macros of doctest that are some, which use a structured binding around them: clang 14 and 15
// refuse that. [&a = a] is allowed.
Strings capture_violations(const Files& files) {
  static const std::regex quoted(R"re(//[^\n]*|"([^"\\\n]|\\.)*")re"), binding(R"(auto&{0,2} \[([^\]]*)\])"),
      lambda(R"(\[[^\[\]]*\] ?(\([^{};]*)?(mutable )?\{)"), macro(R"(\b(INFO|CAPTURE)\([^;]*;)");
  Strings result;
  for (const File& file : files) {
    const std::string text = file.code() ? std::regex_replace(file.text, quoted, "") : "";
    for (std::sregex_iterator bound(text.begin(), text.end(), binding), end; bound != end; ++bound) {
      const std::string names = "(" + std::regex_replace(bound->str(1), std::regex(",\\s*"), "|") + ")\\b",
                        scope = block_in(bound->suffix());
      for (std::sregex_iterator each(scope.begin(), scope.end(), lambda); each != end; ++each)
        if (!std::regex_search(each->str(), std::regex("\\b" + names + " =")) &&
            std::regex_search(block_in(each->suffix()), std::regex("(^|[^\\w.>:])" + names)))
          result.push_back(file.path + ": clang 14 and 15 cannot capture a structured binding: " + each->str());
      for (std::sregex_iterator each(scope.begin(), scope.end(), macro); each != end; ++each)
        if (std::regex_search(each->str(), std::regex("[^\\w.>:]" + names)))
          result.push_back(file.path + ": clang 14 and 15 cannot capture a structured binding: " + each->str());
    }
  }
  return result;
}

void check_none(const Strings& violations) {
  for (const std::string& violation : violations) FAIL_CHECK(violation);
  CHECK(violations.empty());
}

}  // namespace

TEST_CASE("rules: the source tree is found") {
  CHECK(tree().size() > 20);
  CHECK(std::any_of(tree().begin(), tree().end(),
                    [](const File& file) { return file.path == "engine/tensor/tensor.h"; }));
}

TEST_CASE("rules: nothing unfinished, no foreign paths, no printing libraries") { check_none(text_violations(tree())); }

TEST_CASE("rules: no lambda captures a structured binding") { check_none(capture_violations(tree())); }

TEST_CASE("rules: files are short and named after their contents") { check_none(form_violations(tree())); }

// A new component should replace obsolete code. Raise the number only by what a change needs.
TEST_CASE("rules: engine, cuda and nn have at most 37,643 lines") {
  int64_t lines = 0;
  for (const File& file : tree())
    if (file.code() && (file.below("engine") || file.below("cuda") || file.below("nn")))
      lines += std::count(file.text.begin(), file.text.end(), '\n');
  CHECK_MESSAGE(lines <= 37643, lines, " lines; at most 37,643");
}

TEST_CASE("rules: a mask has at most 35 lines") {
  int64_t masks = 0;
  for (const File& file : tree())
    if (file.below("nn/masks") && !file.below("nn/masks/base")) {
      CHECK_MESSAGE(std::count(file.text.begin(), file.text.end(), '\n') <= 35, file.path);
      ++masks;
    }
  CHECK(masks >= 9);
}

TEST_CASE("rules: the roots of engine, cuda and nn contain folders and no sources") {
  for (const std::string layer : {"engine", "cuda", "nn"})
    for (const auto& entry : fs::directory_iterator(root / layer)) {
      const std::string extension = entry.path().extension().string();
      CHECK_MESSAGE((entry.is_directory() || extension == ".cmake" || extension == ".md"),
                    entry.path().filename().string(), " is at the root of ", layer);
    }
}

// The reading list of engine/README.md: rows of the table between the marks, whose first cell names a file.
TEST_CASE("rules: the files of the reading list exist and have at most 3,000 lines") {
  const std::string text = read(root / "engine/README.md").text;
  const size_t begin = text.find("<!-- evening begin -->"), end = text.find("<!-- evening end -->");
  REQUIRE(begin < end);
  REQUIRE(end != std::string::npos);
  static const std::regex row("^\\| `([^`]+)` \\|");
  std::set<std::string> known;
  int64_t total = 0;
  for (const std::string& line : lines_of(text.substr(begin, end - begin))) {
    std::smatch match;
    if (!std::regex_search(line, match, row)) continue;
    const std::string path = match[1];
    REQUIRE_MESSAGE(fs::exists(root / path), path, " is on the reading list, but does not exist");
    CHECK_MESSAGE(known.insert(path).second, path, " is listed twice");
    total += static_cast<int64_t>(lines_of(read(root / path).text).size());
  }
  CHECK(known.size() >= 15);
  CHECK_MESSAGE(total <= 3000, "the reading list has ", total, " lines");
}

TEST_CASE("rules: the top level has a fixed set of entries") {
  const std::set<std::string> allowed{"engine", "nn",       "models",         "cuda",
                                      "tests",  "examples", "CMakeLists.txt", "README.md"};
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || name.starts_with("build") || name == "runs")
      continue;  // git ignores the names of the last two
    CHECK_MESSAGE(allowed.contains(name), name, " is not allowed at the top level");
  }
}

// A string in a test ends with the path of the file, or of a folder that is read as a whole: a model's,
// with config.json, or one that has only folders. If a string names the case's folder, another one may
// hold just the path below it.
TEST_CASE("rules: every file of tests/cases is named in a test") {
  std::string tests;
  for (const File& file : tree())
    if (file.code() && file.below("tests") && !file.below("tests/cases")) tests += file.text;
  const fs::path cases = root / "tests/cases";
  const auto has = [&](const std::string& text) { return tests.find(text) != std::string::npos; };
  const auto ends_string = [&](const std::string& path) { return has(path + "\"") || has(path + "'"); };
  const auto is_named = [&](const std::string& path) {
    const size_t end = path.find('/');
    if (ends_string(path) || end == std::string::npos) return ends_string(path);
    const std::string folder = path.substr(0, end);
    return (has(folder + "/") || ends_string(folder)) && ends_string("\"" + path.substr(end + 1));
  };
  const auto is_whole = [](const fs::path& folder) {
    return fs::exists(folder / "config.json") ||
           std::all_of(fs::directory_iterator(folder), fs::directory_iterator(),
                       [](const fs::directory_entry& each) { return each.is_directory(); });
  };
  for (const auto& entry : fs::recursive_directory_iterator(cases)) {
    const std::string path = fs::relative(entry.path(), cases).generic_string();
    if (!entry.is_regular_file() || path == "README.md") continue;
    bool named = is_named(path);
    for (size_t end = path.find('/'); !named && end != std::string::npos; end = path.find('/', end + 1))
      named = is_whole(cases / path.substr(0, end)) && is_named(path.substr(0, end));
    CHECK_MESSAGE(named, path);
  }
}

TEST_CASE("rules: the rules find what they forbid") {
  const auto count = [](const auto& rule, const std::string& path, const std::string& text) {
    return rule(Files{{path, text}}).size();
  };
  CHECK(count(text_violations, "nn/a.cpp", std::string("// TOD") + "O later\n") == 1);
  CHECK(count(text_violations, "tests/a.py", std::string("open('/roo") + "t/x')\n") == 1);
  CHECK(count(text_violations, "nn/a.cpp", "printf(\"x\");\n") == 1);
  CHECK(count(text_violations, "models/a.cpp", "std::ifstream in(path);\n") == 1);
  CHECK(count(text_violations, "nn/a.cpp", "std::snprintf(text, 8, \"x\");\n") == 0);
  CHECK(count(text_violations, "examples/01_tensors.cpp", "printf(\"x\");\n") == 0);
  CHECK(count(text_violations, "nn/a.cpp", std::string(121, 'x') + "\n") == 1);
  CHECK(count(text_violations, "models/a.cpp", "if (::flock(file, LOCK_EX) != 0) {\n") == 1);
  CHECK(count(text_violations, "engine/system/a.cpp", "if (::flock(file, LOCK_EX) != 0) {\n") == 0);
  const auto captures = [&](const std::string& text) { return count(capture_violations, "nn/a.cpp", text + "\n}\n"); };
  CHECK(captures("{ const auto [a, b] = f(); g([&] { return a + x.b; });") == 1);
  CHECK(captures("{ for (const auto& [a, b] : x) g([=](int i) { return a(i) + b; });") == 1);
  CHECK(captures("{ const auto& [a, b] = f(); g([&b] { return b; });") == 1);
  CHECK(captures("{ for (const auto& [a, b] : x) { f(a); } g([&](int c) { return a + c; });") == 0);
  CHECK(captures("{ const auto [a, b] = f(); g([&, a = a](int c) { return a + c; });") == 0);
  CHECK(count(form_violations, "nn/a.cpp", std::string(401, '\n')) == 1);
  CHECK(count(form_violations, "nn/a.h", "int x;\n") == 1);
  CHECK(count(form_violations, "nn/a.cpp", "int x;") == 1);
}
