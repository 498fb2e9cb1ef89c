// An attention problem with the weighting of its kernels, and access to its tensors by rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/attention/attention.h"
#include "cuda/runtime/launch.cuh"
#include "engine/attention_formula/formula.h"

namespace orrery::cuda {

template <class A, class Weighting>
struct WeightedProblem : AttentionProblem<A> {
  Weighting weights;
  const A* inner = nullptr;  // backward of softmax: c_i = <do_i, o_i> for each row
};

// Rows of one head, one per token; Memory is void, or const void for reading. Kernels for float also
// access bf16, chosen at run time: so a weighting is compiled for two types instead of three.
template <class A, class Memory>
struct RowsOfHead {
  Memory* data = nullptr;
  int64_t stride = 0, first = 0;
  bool is_bf16 = false;

  __device__ A at(int64_t row, int column) const {
    const int64_t i = first + row * stride + column;
    if constexpr (sizeof(A) == 4)
      if (is_bf16) return static_cast<A>(static_cast<const bf16*>(data)[i]);
    return static_cast<const A*>(data)[i];
  }
  __device__ void set(int64_t row, int column, A x) const {
    const int64_t i = first + row * stride + column;
    if constexpr (sizeof(A) == 4)
      if (is_bf16) {
        static_cast<bf16*>(data)[i] = bf16(x);
        return;
      }
    static_cast<A*>(data)[i] = x;
  }
};
template <class A>
using ReadRows = RowsOfHead<A, const void>;
template <class A>
using WriteRows = RowsOfHead<A, void>;

// Returns the rows of x, one per token, that begin at `column` of token `token`. B: A or const A.
template <class A, class B>
__device__ auto rows_from(const AttentionProblem<A>& p, TensorView<B> x, int64_t token, int64_t column) {
  using Rows = std::conditional_t<std::is_const_v<B>, ReadRows<A>, WriteRows<A>>;
  return Rows{x.data, x.stride, token * x.stride + column, p.is_bf16};
}

}  // namespace orrery::cuda
