// The kernels of attention in bf16 by vdpbf16ps.
#include "engine/attention/instructions.h"
#include "engine/matmul/bf16_dot.h"

namespace orrery::detail::attention {

constinit const Kernels<float> bf16_pairs = kernels_of<matmul::Pairs>;

}  // namespace orrery::detail::attention
