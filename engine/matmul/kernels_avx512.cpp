// Products for AVX-512. Elements are multiplied as they are; packing widens bf16.
#include "engine/matmul/plain_kernels.h"

namespace orrery::detail::matmul {

constinit const Kernels avx512 = plain_kernels("avx512");

}  // namespace orrery::detail::matmul
