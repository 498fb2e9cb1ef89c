#include "examples/orrery/formula_source.h"

#include <algorithm>
#include <regex>

#include "engine/base/check.h"

namespace orrery::program {
namespace {

// The same length, blank where comments and literals were, so that places stay what they are.
std::string without_comments(std::string text) {
  static const std::regex pieces(R"(//[^\n]*|/\*[\s\S]*?\*/|"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])+')");
  for (std::sregex_iterator found(text.begin(), text.end(), pieces), end; found != end; ++found)
    for (auto c = found->position(); c < found->position() + found->length(); ++c)
      if (text[static_cast<size_t>(c)] != '\n') text[static_cast<size_t>(c)] = ' ';
  return text;
}

size_t end_of_body(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at;
  }
  return text.size();
}

}  // namespace

std::vector<std::string> foreign_calls(const std::string& source) {
  static const std::regex call(R"(std::(\w+)\s*\()");
  const std::string text = without_comments(source), mark = "HOST_DEVICE";
  std::vector<std::string> found;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const size_t open = text.find_first_of("{;", at);
    if (open == std::string::npos || text[open] == ';') continue;
    const std::string body = text.substr(open, end_of_body(text, open) - open);
    for (std::sregex_iterator one(body.begin(), body.end(), call), end; one != end; ++one) {
      const auto place = text.begin() + static_cast<std::ptrdiff_t>(open) + one->position();
      const std::string name = one->str(1);
      found.push_back(orrery::text("line ", 1 + std::count(text.begin(), place, '\n'), ": std::", name,
                                   " in a function that a GPU runs too; use scalar::", name,
                                   " of engine/base/scalar.h, or simple operations"));
    }
  }
  return found;
}

}  // namespace orrery::program
