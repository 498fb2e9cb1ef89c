// The count of multiply-adds that attention has computed.
#pragma once

#include <cstdint>

namespace orrery {

// Returns the multiply-adds of all CPU attention called by this thread since the thread started,
// without those that masks and spans skip. The difference of two calls is the work between them.
int64_t attention_multiply_adds();

}  // namespace orrery
