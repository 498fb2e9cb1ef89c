// Kinds of ASCII characters, in every locale, and texts without surrounding white space.
#pragma once

#include <string>
#include <string_view>

namespace orrery {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }
constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string lower_case(std::string text) {
  for (char& c : text) c = lower_case(c);
  return text;
}

constexpr std::string_view trimmed(std::string_view text) {
  constexpr std::string_view spaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(spaces);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(spaces) - begin + 1);
}

}  // namespace orrery
