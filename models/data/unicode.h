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
// The same; an Error that says what to do if there is none, and at which byte, where `before` came before the text.
Character character_at(std::string_view text, size_t at, uint64_t before = 0);

// Where a text may be cut so that no character is: its end, or before a character that its end breaks off.
size_t end_of_characters(std::string_view text);

std::string utf8(char32_t point);
std::string describe(char32_t point);  // 'é' (U+00E9); control characters by number alone

}  // namespace orrery::models
