// Products for AVX-512: elements multiplied as they are, those of bf16 widened while they are packed.
#include "engine/matmul/blocks.h"
#include "engine/matmul/plain.h"

namespace orrery::detail::matmul {
namespace {

template <class T, class E>
constexpr TileKernel<T, E> kernel_of = {multiply_tile<Plain<T, E>>, workspace<Plain<T, E>>};

}  // namespace

constinit const Kernels avx512 = {"avx512", kernel_of<float, float>, kernel_of<double, double>, kernel_of<float, bf16>};

}  // namespace orrery::detail::matmul
