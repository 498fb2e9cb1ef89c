#include "models/formats/unicode.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "engine/types/check.h"

namespace orrery::models {
namespace {

[[noreturn]] void refuse_byte(uint64_t at, std::string_view what, std::string_view way_out) {
  fail(what, " is not valid UTF-8 at byte ", at, "; ", way_out);
}
constexpr std::string_view text_of_a_tokenizer = "tokenizer: the text",
                           without_characters = "convert it to UTF-8, or use tokenizer=byte";

}  // namespace

std::optional<Character> character_if_any(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return Character{first, 1};
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  static constexpr std::array<char32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  char32_t point = first & (0xFFu >> (length + 1));
  bool valid = first >= 0xC0 && first < 0xF8;
  for (size_t i = 1; i < length; ++i) {
    valid = valid && (byte(i) & 0xC0u) == 0x80;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  valid = valid && point >= smallest[length] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
  return valid ? std::optional(Character{point, length}) : std::nullopt;
}

void check_utf8(std::string_view text, std::string_view what, std::string_view way_out, uint64_t before) {
  for (size_t at = 0; at < text.size();) {
    const std::optional<Character> found = character_if_any(text, at);
    if (!found) refuse_byte(before + at, what, way_out);
    at += found->bytes;
  }
}
void check_characters(std::string_view text, uint64_t before) {
  check_utf8(text, text_of_a_tokenizer, without_characters, before);
}
Character character_at(std::string_view text, size_t at, uint64_t before) {
  const std::optional<Character> found = character_if_any(text, at);
  if (!found) refuse_byte(before + at, text_of_a_tokenizer, without_characters);
  return *found;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80; });
}

size_t end_of_characters(std::string_view text) {
  constexpr size_t longest = 4;
  for (size_t back = 1; back < longest && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0u) == 0x80) continue;  // not the first byte of a character
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::string utf8(char32_t point) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0)};
}

std::string describe(char32_t point) {
  char number[16];
  std::snprintf(number, sizeof(number), "U+%04X", static_cast<unsigned>(point));
  const bool control = point < 0x20 || (point >= 0x7F && point < 0xA0);
  return control ? number : text("'", utf8(point), "' (", number, ")");
}

}  // namespace orrery::models
