#include "examples/orrery/formula_source.h"

#include <algorithm>
#include <string_view>

#include "engine/base/check.h"

namespace orrery::program {
namespace {

// No regular expressions here: the library's take a frame of the stack for each letter of a comment or a name.

// Where the comment or literal that begins at `at` ends; `at` itself if none does.
size_t end_of_piece(const std::string& text, size_t at) {
  const auto after = [&](const char* mark, size_t from, size_t length) {
    const size_t found = text.find(mark, from);
    return found == std::string::npos ? found : found + length;
  };
  if (text.compare(at, 2, "//") == 0) return std::min(text.find('\n', at), text.size());
  if (text.compare(at, 2, "/*") == 0) return std::min(after("*/", at + 2, 2), text.size());
  if (text[at] != '"' && text[at] != '\'') return at;
  for (size_t i = at + 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == text[at]) return i + 1;
    if (text[i] == '\\') ++i;
  }
  return at;
}

// The same length, blank where comments and literals were, so that places stay what they are.
std::string without_comments(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_piece(text, at);
    for (size_t c = at; c < end; ++c)
      if (text[c] != '\n') text[c] = ' ';
    at = std::max(end, at + 1);
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

std::vector<std::string> foreign_calls(const std::string& source) {
  static constexpr std::string_view word_letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const std::string text = without_comments(source), mark = "HOST_DEVICE";
  std::vector<std::string> found;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const size_t open = text.find_first_of("{;", at);
    if (open == std::string::npos || text[open] == ';') continue;
    const std::string body = text.substr(open, end_of_body(text, open) - open);
    for (size_t call = body.find("std::"); call != std::string::npos; call = body.find("std::", call + 1)) {
      const size_t begin = call + 5, end = std::min(body.find_first_not_of(word_letters, begin), body.size());
      const size_t after = body.find_first_not_of(" \t\r\n", end);
      if (end == begin || after == std::string::npos || body[after] != '(') continue;
      const auto place = text.begin() + static_cast<std::ptrdiff_t>(open + call);
      const std::string name = body.substr(begin, end - begin);
      found.push_back(orrery::text("line ", 1 + std::count(text.begin(), place, '\n'), ": std::", name,
                                   " in a function that a GPU runs too; use scalar::", name,
                                   " of engine/base/scalar.h, or simple operations"));
    }
  }
  return found;
}

}  // namespace orrery::program
