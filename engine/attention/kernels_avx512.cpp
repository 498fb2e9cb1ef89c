// The kernels of attention, compiled for AVX-512 by the build.
#include "engine/attention/instructions.h"

namespace orrery::detail::attention {

constinit const InstructionSet avx512 = plain_instructions("avx512");

}  // namespace orrery::detail::attention
