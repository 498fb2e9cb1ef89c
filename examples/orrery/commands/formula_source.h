// Finds code in formula files that compiles for a CPU, but is wrong or invalid on a GPU.
#pragma once

#include <string>
#include <vector>

namespace orrery::program {

// Returns a message for each call of the standard library in a HOST_DEVICE function. nvcc compiles
// std::exp to different bits, and most others not at all; engine/math/scalar.h is bit-identical.
std::vector<std::string> std_calls(const std::string& source);

}  // namespace orrery::program
