// The Markdown pages: sizes, links, and figures that are copied from one page to another.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iomanip>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/tree.h"

namespace {

namespace fs = std::filesystem;
using orrery::testing::lines_of;
using orrery::testing::source_root;
using orrery::testing::contents;
using Strings = std::vector<std::string>;

struct Page {
  std::string path, text;  // the path relative to the root
};

const std::vector<Page>& pages() {
  static const std::vector<Page> all = [] {
    std::vector<Page> found = {{"README.md", contents(source_root / "README.md")}};
    for (const char* folder : {"cuda", "engine", "examples", "models", "nn", "tests"})
      for (const auto& entry : fs::recursive_directory_iterator(source_root / folder))
        if (entry.is_regular_file() && entry.path().extension() == ".md")
          found.push_back({fs::relative(entry.path(), source_root).generic_string(), contents(entry.path())});
    std::sort(found.begin(), found.end(), [](const Page& a, const Page& b) { return a.path < b.path; });
    return found;
  }();
  return all;
}

// Written by a program, which a test compares with the page.
bool is_generated(const std::string& path) {
  return path.ends_with("CATALOGUE.md") || path == "engine/API.md" || path == "examples/studies/README.md";
}

// Returns the lines of a page; those of code blocks are empty.
Strings prose_of(const std::string& text) {
  Strings lines = lines_of(text);
  bool in_code = false;
  for (std::string& line : lines) {
    const bool is_fence = line.starts_with("```");
    if (is_fence) in_code = !in_code;
    if (is_fence || in_code) line.clear();
  }
  return lines;
}

// Returns the name that GitHub gives a heading in links.
std::string anchor_of(std::string_view heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ')
      anchor += '-';
    else if (std::isalnum(byte) || byte >= 0x80 || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(byte));
  }
  return anchor;
}

bool has_heading(const std::string& text, const std::string& anchor) {
  for (const std::string& line : prose_of(text))
    if (const size_t begin = line.find_first_not_of('#'); begin > 0 && begin < line.size() && line[begin] == ' ')
      if (anchor_of(std::string_view(line).substr(begin + 1)) == anchor) return true;
  return false;
}

// Returns a message for each link to a file or heading that does not exist, and for each path of
// the tree in backticks that does not exist.
Strings missing_targets(const Page& page) {
  static const std::regex code("`[^`]*`"), link("\\]\\(([^)\\s]+)\\)"),
      path("`((engine|nn|models|cuda|tests|examples)/[\\w./-]+)`");
  const auto all = [](const std::string& line, const std::regex& form) {
    Strings found;
    for (std::sregex_iterator at(line.begin(), line.end(), form), end; at != end; ++at) found.push_back((*at)[1]);
    return found;
  };
  Strings missing;
  size_t number = 0;
  for (const std::string& line : prose_of(page.text)) {
    const std::string place = page.path + ":" + std::to_string(++number) + ": ";
    for (const std::string& target : all(std::regex_replace(line, code, ""), link)) {
      if (target.starts_with("http://") || target.starts_with("https://")) continue;
      const size_t mark = std::min(target.find('#'), target.size());
      const fs::path file =
          source_root / (fs::path(page.path).parent_path() / target.substr(0, mark)).lexically_normal();
      if (mark > 0 && !fs::exists(file))
        missing.push_back(place + "the link's file does not exist: " + target);
      else if (mark < target.size() && !has_heading(mark > 0 ? contents(file) : page.text, target.substr(mark + 1)))
        missing.push_back(place + "the link's heading does not exist: " + target);
    }
    for (const std::string& named : all(line, path))
      if (!fs::exists(source_root / named)) missing.push_back(place + "this path does not exist: " + named);
  }
  return missing;
}

// Returns a message for each line of a block after <!-- copied from PAGE --> that PAGE lacks. Links
// of a row lead from the page's own folder, and the text of its first link may differ.
Strings outdated_copies(const Page& page, size_t& copies) {
  static const std::regex mark("<!-- copied from (\\S+) -->");
  Strings outdated;
  std::string source, folder;  // of the block; empty: not in a block
  for (const std::string& line : lines_of(page.text)) {
    if (std::smatch match; std::regex_match(line, match, mark)) {
      source = match[1], folder = fs::path(source).parent_path().generic_string() + "/", ++copies;
      continue;
    }
    if (line.empty()) source.clear();
    if (source.empty() || line.starts_with("```")) continue;
    std::string row = line;
    for (size_t at; (at = row.find("](" + folder)) != std::string::npos;) row.erase(at + 2, folder.size());
    if (row.starts_with("| [")) row.erase(0, row.find("]("));
    if (contents(source_root / source).find(row + "\n") == std::string::npos)
      outdated.push_back(page.path + ": " + source + " has no such line: " + row);
  }
  return outdated;
}

}  // namespace

TEST_CASE("pages: README has at most 200 lines and 12 KB, every other written page at most 20 KB") {
  std::ostringstream sizes;
  for (const Page& page : pages()) {
    const size_t bytes = page.text.size(), limit = (page.path == "README.md" ? 12 : 20) * 1024;
    sizes << "\n" << std::setw(8) << bytes << "  " << page.path << (is_generated(page.path) ? " (generated)" : "");
    CHECK_MESSAGE((is_generated(page.path) || bytes <= limit), page.path, " has ", bytes, " bytes; at most ", limit);
    if (page.path == "README.md") CHECK(lines_of(page.text).size() <= 200);
  }
  const std::string list = sizes.str();
  MESSAGE("sizes of pages in bytes:", list);
}

TEST_CASE("pages: every link leads to a file or heading of the tree, and every named path exists") {
  for (const Page& page : pages())
    for (const std::string& missing : missing_targets(page)) FAIL_CHECK(missing);
  const auto count = [](const std::string& text) { return missing_targets({"tests/page.md", text}).size(); };
  CHECK(count("[rules](rules_test.cpp), [README](../README.md#orrery), `tests/run.sh`\n") == 0);
  CHECK(count("# A heading, with `code`\n\n[here](#a-heading-with-code) [there](https://example.org/x)\n") == 0);
  CHECK(count("[none](none.md)\n") == 1);
  CHECK(count("[none](../README.md#no-such-heading)\n") == 1);
  CHECK(count("`tests/none.sh`\n") == 1);
  CHECK(count("```\n[none](none.md)\n```\n") == 0);
}

TEST_CASE("pages: figures that are copied from another page are those of that page") {
  size_t copies = 0;
  for (const Page& page : pages())
    for (const std::string& outdated : outdated_copies(page, copies)) FAIL_CHECK(outdated);
  CHECK(copies >= 3);  // README: a sweep, verdicts, speed
  const auto count = [&](const std::string& text) { return outdated_copies({"page.md", text}, copies).size(); };
  const std::string begin = "<!-- copied from examples/data/README.md -->\n";
  CHECK(count(begin + "no such line\n") == 1);
  CHECK(count(begin + "```\nno such line\n```\n\nanother paragraph\n") == 1);
  CHECK(count("no such line\n") == 0);
}

TEST_CASE("pages: every picture has colors for a dark page") {
  size_t pictures = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source_root / "examples")) {
    if (entry.path().extension() != ".svg") continue;
    const std::string path = fs::relative(entry.path(), source_root).generic_string(), svg = contents(entry.path());
    ++pictures;
    CHECK_MESSAGE(svg.find("@media (prefers-color-scheme: dark)") != std::string::npos, path);
  }
  CHECK(pictures >= 49);
}
