// The kernels of products of one instruction set, that which the including file is compiled for: elements multiplied
// as they are, those of bf16 widened while they are packed.
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
