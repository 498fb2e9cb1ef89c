// Attention's CPU kernels, for the instruction set that the including file is compiled for.
#pragma once

#include "engine/attention/backward.h"
#include "engine/attention/forward.h"
#include "engine/attention/statistics.h"
#include "engine/matmul/plain.h"

namespace orrery::detail::attention {
namespace {

template <class N>
constexpr Kernels<Accumulator<N>> kernels_of = {forward<N>, statistics<N>, backward<N>};

constexpr InstructionSet plain_instructions(const char* name) {
  return {name, kernels_of<matmul::Plain<float, float>>, kernels_of<matmul::Plain<double, double>>,
          kernels_of<matmul::Plain<float, bf16>>};
}

}  // namespace
}  // namespace orrery::detail::attention
