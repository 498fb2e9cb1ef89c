// Checks of sizes where a program may pass them without the limits of settings.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "engine/types/check.h"

namespace orrery::models {

// Throws for the first size below 1:
//   gpt: layers is 0; it must be at least 1
inline void check_at_least_one(std::string_view what,
                               std::initializer_list<std::pair<std::string_view, int64_t>> sizes) {
  for (const auto& [name, size] : sizes) check(size >= 1, what, ": ", name, " is ", size, "; it must be at least 1");
}

}  // namespace orrery::models
