// Bytes that this program holds, and their peak: counts every allocation of every library.
#pragma once

#include <cstddef>

namespace fuzz {

size_t memory_held();
void reset_memory_peak();
size_t memory_peak();

}  // namespace fuzz
