#include "examples/orrery/commands/formula_source.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>

#include "engine/types/ascii.h"
#include "engine/types/check.h"

namespace orrery::program {
namespace {

bool is_name_char(char c) { return is_letter_or_digit(c) || c == '_'; }

// Returns the end of the comment or literal at `at` (a literal ends with its line), or 0 if none.
size_t end_of_comment(const std::string& text, size_t at) {
  const auto found = [&](size_t end, size_t length) { return end == std::string::npos ? text.size() : end + length; };
  if (text.compare(at, 2, "//") == 0) return found(text.find('\n', at), 0);
  if (text.compare(at, 2, "/*") == 0) return found(text.find("*/", at + 2), 2);
  const char quote = text[at];
  if ((quote != '"' && quote != '\'') || (quote == '\'' && at > 0 && is_name_char(text[at - 1]))) return 0;  // 1'000
  for (++at; at < text.size() && text[at] != quote && text[at] != '\n'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// Blanks comments and literals; offsets stay valid. Not std::regex, which recurses once per
// character and would exhaust the stack.
std::string without_comments(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_comment(text, at);
    if (end == 0) ++at;
    for (; at < end; ++at)
      if (text[at] != '\n') text[at] = ' ';
  }
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

std::vector<std::string> std_calls(const std::string& source) {
  const std::string text = without_comments(source), mark = "HOST_DEVICE", standard = "std::";
  std::vector<std::string> found;
  int64_t line = 1;
  size_t counted = 0;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    const size_t open = text.find_first_of("{;", at);
    if (open == std::string::npos) break;
    at = text[open] == ';' ? open : end_of_body(text, open);
    const std::string_view body = std::string_view(text).substr(0, at);
    for (size_t call = body.find(standard, open); call != std::string::npos; call = body.find(standard, call + 1)) {
      const size_t begin = call + standard.size();
      size_t end = begin;
      while (end < at && is_name_char(text[end])) ++end;
      const std::string name = text.substr(begin, end - begin);
      while (end < at && std::isspace(static_cast<unsigned char>(text[end]))) ++end;
      if (name.empty() || end >= at || text[end] != '(') continue;
      line += std::count(text.begin() + static_cast<std::ptrdiff_t>(counted),
                         text.begin() + static_cast<std::ptrdiff_t>(call), '\n');
      counted = call;
      found.push_back(orrery::text("line ", line, ": std::", name,
                                   " is called in a function that also runs on GPUs; use scalar::", name,
                                   " of engine/math/scalar.h, or simple operations"));
    }
  }
  return found;
}

}  // namespace orrery::program
