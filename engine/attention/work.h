// How much attention has really computed.
#pragma once

#include <cstdint>

namespace orrery {

// Multiplications with additions of all attention on a CPU that this thread has asked for since it began; what masks
// and spans leave out is not in it.  The difference of two calls measures what happened between them.
int64_t attention_multiply_adds();

}  // namespace orrery
