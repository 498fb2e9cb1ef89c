#pragma once

#include <string_view>

namespace orrery::testing {

inline bool contains(std::string_view text, std::string_view expected) { return text.find(expected) != text.npos; }

}  // namespace orrery::testing
