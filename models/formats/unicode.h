// Characters of a text in UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::models {

struct Character {
  char32_t point;
  size_t bytes;
};

// Returns the character at byte `at`, or nothing if it is not UTF-8, which excludes overlong forms,
// surrogates and points above U+10FFFF.
std::optional<Character> character_if_any(std::string_view text, size_t at);
// Throws Error at the first byte that is not UTF-8, for all readers of characters:
//   pairs: train.de is not valid UTF-8 at byte 5; convert it to UTF-8
// `what` begins the message, `way_out` ends it, and `before` bytes precede the text.
void check_utf8(std::string_view text, std::string_view what, std::string_view way_out = "convert it to UTF-8",
                uint64_t before = 0);
// Like check_utf8, for the text of a tokenizer that reads characters.
void check_characters(std::string_view text, uint64_t before = 0);
// Returns the character at byte `at`; throws the Error of check_characters if it is not UTF-8.
Character character_at(std::string_view text, size_t at, uint64_t before = 0);

// Returns the number of characters in any bytes: each byte that does not continue a character.
int64_t count_characters(std::string_view text);
// Returns the size of the text without an incomplete last character.
size_t end_of_characters(std::string_view text);

// Some programs write it at the start of a file to mark UTF-8; readers of files drop it.
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

std::string utf8(char32_t point);      // 1 to 4 bytes
std::string describe(char32_t point);  // 'é' (U+00E9); control characters by number alone

}  // namespace orrery::models
