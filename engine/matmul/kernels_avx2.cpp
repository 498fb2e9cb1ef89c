// Products for AVX2 and FMA. Elements are multiplied as they are; packing widens bf16.
#include "engine/matmul/plain_kernels.h"

namespace orrery::detail::matmul {

constinit const Kernels avx2 = plain_kernels("avx2");

}  // namespace orrery::detail::matmul
