// The product kernels of the instruction set that the including file is compiled for. Elements are
// multiplied as they are; bf16 is widened while it is packed.
#pragma once

#include "engine/matmul/blocks.h"
#include "engine/matmul/plain.h"

namespace orrery::detail::matmul {
namespace {

template <class T, class E>
constexpr TileKernel<T, E> kernel_of = {multiply_tile<Plain<T, E>>, workspace<Plain<T, E>>};

constexpr Kernels plain_kernels(const char* name) {
  return {name, kernel_of<float, float>, kernel_of<double, double>, kernel_of<float, bf16>};
}

}  // namespace
}  // namespace orrery::detail::matmul
