// Characters of a text in UTF-8.
#pragma once

#include <cstddef>
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
Character character_at(std::string_view text, size_t at);  // the same; an Error that says what to do if there is none

std::string utf8(char32_t point);
std::string describe(char32_t point);  // 'é' (U+00E9); control characters by number alone

}  // namespace orrery::models
