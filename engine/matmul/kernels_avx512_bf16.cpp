// Products of bf16 by vdpbf16ps.
#include "engine/matmul/bf16_dot.h"

#include "engine/matmul/blocks.h"

namespace orrery::detail::matmul {

constinit const TileKernel<float, bf16> bf16_pairs = {multiply_tile<Pairs>, workspace<Pairs>};

}  // namespace orrery::detail::matmul
