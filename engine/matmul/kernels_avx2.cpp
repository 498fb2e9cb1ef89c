// Products for AVX2 and FMA: elements multiplied as they are, those of bf16 widened while they are packed.
#include "engine/matmul/plain_kernels.h"

namespace orrery::detail::matmul {

constinit const Kernels avx2 = plain_kernels("avx2");

}  // namespace orrery::detail::matmul
