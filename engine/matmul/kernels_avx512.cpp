// Products for AVX-512: elements multiplied as they are, those of bf16 widened while they are packed.
#include "engine/matmul/plain_kernels.h"

namespace orrery::detail::matmul {

constinit const Kernels avx512 = plain_kernels("avx512");

}  // namespace orrery::detail::matmul
