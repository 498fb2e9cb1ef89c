// What the compiler of a CPU lets pass in a formula file, and a GPU would punish.
#pragma once

#include <string>
#include <vector>

namespace orrery::program {

// The calls of the standard library in functions marked HOST_DEVICE, a sentence for each.  nvcc compiles std::exp to
// other bits than a CPU has, and most others not at all; those of engine/math/scalar.h are the same everywhere.
std::vector<std::string> foreign_calls(const std::string& source);

}  // namespace orrery::program
