// How much memory this program holds, and the most it held: every allocation of every library is counted.
#pragma once

#include <cstddef>

namespace fuzz {

size_t memory_held();
void reset_memory_peak();
size_t memory_peak();

}  // namespace fuzz
