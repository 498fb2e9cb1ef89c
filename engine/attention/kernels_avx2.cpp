// The kernels of attention, compiled for AVX2 and FMA by the build.
#include "engine/attention/instructions.h"

namespace orrery::detail::attention {

constinit const InstructionSet avx2 = plain_instructions("avx2");

}  // namespace orrery::detail::attention
