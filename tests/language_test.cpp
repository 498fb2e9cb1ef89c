// The language of comments, messages and pages: finds banned words, and comments that begin like a
// relative clause, and prints their lines.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/contents.h"

namespace {

namespace fs = std::filesystem;

const fs::path root = ORRERY_SOURCE_DIR;

// Removed before the search: "there is no X", and an option of tests/gpu_static.
const std::regex plain("there (is|are) no|--card\\b", std::regex::icase);
const std::regex banned(
    "\\b(reckon(s|ed)?|drawn out|held against|of before|beside|tells?|told|shall|(comes?|came) to|of (its|their) own|"
    "no bit of|witness(es)?|judged?|cards?|go(es)? on|so many|whatever|nobody|somebody|(is|are) no (?!longer)|but for|"
    "likeliest|mended|owed|without meaning|makes no sense)\\b",
    std::regex::icase);
const std::regex beginning("^(Of|What|Whether|The same)\\b");

enum Kind { comments, beginnings, strings, kinds };
const std::map<Kind, std::string> names = {
    {comments, "comments"}, {beginnings, "beginnings of comments"}, {strings, "text in quotes"}};
// README.md and the top folders; lines of a page count as comments.
const std::vector<std::string> folders = {"README.md", "engine", "cuda", "nn", "models", "examples", "tests"};
// Names in files and commands of older versions, which are read for good.
const std::set<std::string> former_names = {"beside", "judge", "test|judge"};

struct Sentence {
  Kind kind;
  size_t line;
  std::string text;
};

// Returns the comments of C++ code without slashes, and its string literals except #include names.
std::vector<Sentence> sentences_of(const std::string& code) {
  std::vector<Sentence> found;
  std::istringstream in(code);
  size_t number = 0;
  bool after_comment = false;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const size_t first = line.find_first_not_of(' ');
    bool whole = false;
    for (size_t at = 0; at < line.size() && !line.starts_with("#include"); ++at) {
      if (line.compare(at, 2, "//") == 0) {
        const size_t begin = std::min(line.find_first_not_of("/ ", at), line.size());
        found.push_back({comments, number, line.substr(begin)});
        whole = at == first;
        if (!whole || !after_comment) found.push_back({beginnings, number, line.substr(begin)});
        break;
      }
      if (line[at] == '\'')
        at += at + 1 < line.size() && line[at + 1] == '\\' ? 3 : at + 2 < line.size() && line[at + 2] == '\'' ? 2 : 0;
      if (at >= line.size() || line[at] != '"') continue;
      size_t end = at + 1;
      while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
      found.push_back({strings, number, line.substr(at + 1, std::min(end, line.size()) - at - 1)});
      at = end;
    }
    after_comment = whole;
  }
  return found;
}

size_t violations_in(const Sentence& sentence) {
  if (sentence.kind == beginnings) return std::regex_search(sentence.text, beginning);
  if (sentence.kind == strings && former_names.contains(sentence.text)) return 0;
  const std::string text = std::regex_replace(sentence.text, plain, "");
  return static_cast<size_t>(std::distance(std::sregex_iterator(text.begin(), text.end(), banned), {}));
}

std::vector<Sentence> sentences_in(const fs::path& path) {
  const std::string text = orrery::testing::contents(path);
  if (path.extension() != ".md") return sentences_of(text);
  std::vector<Sentence> lines;
  std::istringstream page(text);
  size_t number = 0;
  const bool quotes_claims = path.parent_path().parent_path() == root / "examples/studies";
  for (std::string line; std::getline(page, line); ++number)
    if (!quotes_claims || !line.starts_with("| [")) lines.push_back({comments, number + 1, line});
  return lines;
}

struct Count {
  size_t count = 0;
  std::string where;  // the first ones
};
void count_in(const fs::path& path, std::vector<Count>& counts) {
  constexpr size_t enough = 1500;  // characters
  for (const Sentence& sentence : sentences_in(path)) {
    const size_t found = violations_in(sentence);
    Count& count = counts[sentence.kind];
    count.count += found;
    if (found > 0 && count.where.size() < enough)
      count.where +=
          "\n" + fs::relative(path, root).string() + ":" + std::to_string(sentence.line) + ": " + sentence.text;
  }
}

std::vector<Count> counted_below(const std::string& folder) {
  std::vector<Count> counts(kinds);
  if (fs::is_regular_file(root / folder)) return count_in(root / folder, counts), counts;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string extension = entry.path().extension();
    const bool data = entry.path().string().find("/tests/cases/") != std::string::npos ||
                      entry.path() == root / "examples/studies/README.md";  // quotes sentences of claims
    if (entry.is_regular_file() && !data &&
        (extension == ".h" || extension == ".cpp" || extension == ".cuh" || extension == ".cu" || extension == ".md") &&
        entry.path() != root / "tests/language_test.cpp")
      count_in(entry.path(), counts);
  }
  return counts;
}

}  // namespace

TEST_CASE("language: no comment, message or page has a banned word") {
  for (const std::string& folder : folders) {
    const std::vector<Count> found = counted_below(folder);
    for (const Kind kind : {comments, beginnings, strings})
      CHECK_MESSAGE(found[kind].count == 0, folder, ": ", found[kind].count, " in ", names.at(kind), found[kind].where);
  }
}

TEST_CASE("language: the count finds each banned word and ignores plain sentences") {
  const auto count = [](const std::string& code) {
    size_t all = 0;
    for (const Sentence& sentence : sentences_of(code)) all += violations_in(sentence);
    return all;
  };
  for (const char* bad : {"// It is reckoned in f64.",
                          "// drawn out to all layers",
                          "// held against PyTorch",
                          "// as of before",
                          "// beside it",
                          "// tells the user",
                          "// told",
                          "// shall",
                          "// comes to 3",
                          "// came to 3",
                          "// of its own",
                          "// no bit of it",
                          "// a witness",
                          "// judged",
                          "// on a card",
                          "// goes on",
                          "// so many rows",
                          "// whatever",
                          "// nobody",
                          "// somebody",
                          "// x is no number",
                          "// they are no numbers",
                          "// all but for x",
                          "// likeliest",
                          "// mended",
                          "// owed",
                          "// without meaning",
                          "// makes no sense",
                          "f(\"this is no number\");",
                          "f(\"judge it\");",
                          "// Of the rows.",
                          "// What it is.",
                          "int x;  // Whether it is.",
                          "// The same."})
    CHECK_MESSAGE(count(bad) == 1, bad);
  for (const char* good :
       {"// There is no number.", "// x is no longer there", "// discard", "int card = 3;", "#include \"tell.h\"",
        "f(\"test|judge\");", "// Returns what it is.", "// A line.\n// Of it.", "f(\"told\\\"\"[0] == '\"');  // x",
        "f('\"', \"x\");"})
    CHECK_MESSAGE(count(good) == (std::string(good).find("told") != std::string::npos), good);
}
