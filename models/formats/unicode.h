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

// The character that begins at byte `at`; none if that is no UTF-8: overlong forms, halves of pairs and points above
// U+10FFFF are none.
std::optional<Character> character_if_any(std::string_view text, size_t at);
// The one rule for bytes that are not UTF-8, wherever text is read as characters.  The first of them is an Error:
//   pairs: train.de is not UTF-8 at byte 5; convert it
// `what` begins the sentence, `way_out` ends it, and `before` bytes came before the text.
void check_utf8(std::string_view text, std::string_view what, std::string_view way_out = "convert it",
                uint64_t before = 0);
// The same of a text for a tokenizer that reads characters.
void check_characters(std::string_view text, uint64_t before = 0);
// The character that begins at byte `at`; the Error of check_characters if that is not UTF-8.
Character character_at(std::string_view text, size_t at, uint64_t before = 0);

// Where a text may be cut so that no character is: its end, or before a character that its end breaks off.
size_t end_of_characters(std::string_view text);

std::string utf8(char32_t point);
std::string describe(char32_t point);  // 'é' (U+00E9); control characters by number alone

}  // namespace orrery::models
