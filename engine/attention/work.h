// The count of operations that attention has performed.
#pragma once

#include <cstdint>

namespace orrery {

// Returns the multiply-adds of all CPU attention called by this thread since it started, without
// those that masks and spans skip. The difference of two calls measures the work between them.
int64_t attention_multiply_adds();

}  // namespace orrery
