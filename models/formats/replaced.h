#pragma once

#include <string>
#include <string_view>

namespace orrery::models {

// Returns the text with `to` in each place of `from`, which is not empty.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

}  // namespace orrery::models
