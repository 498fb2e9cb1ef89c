// Products whose elements an activation F sees as soon as they are complete: what a dense feed-forward does on a GPU.
// Compiled where F's formula stands, so the kernels are few: products of bf16 and of f32 call F on what is in their
// registers.  Those of f64, those of f32 in parts, and those whose k is cut into pieces write sums that a second kernel
// finishes, which calls F then.
#pragma once

#include <type_traits>

#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/parts.cuh"
#include "cuda/matmul/tensor_core_tiles.cuh"

namespace orrery::cuda {

// C keeps z = A B^T + bias, `second` becomes F(z), of z as C keeps it.
template <class T, class F>
struct Activated {
  using A = Arithmetic<T>;
  static constexpr bool b_transposed = true;
  F f;
  T* second;
  In<T> bias;

  __device__ Values<A, 2> operator()(A sum, const Place& at) const {
    const A z = static_cast<A>(static_cast<T>(bias ? sum + bias[at.column_of_product] : sum));
    return {{z, f.value(z)}};
  }
};

// da = A B, rounded to T, is not kept: C becomes dz = F'(z) da and `second` a = F(z), as nn/feed_forwards/dense.cpp
// derives them.
template <class T, class F>
struct ActivatedBackward {
  using A = Arithmetic<T>;
  static constexpr bool b_transposed = false;
  F f;
  T* second;
  In<T> z;
  int64_t columns;

  __device__ Values<A, 2> operator()(A da, const Place& at) const {
    const A x = z[at.row * columns + at.column];
    return {{f.derivative(x) * static_cast<A>(static_cast<T>(da)), f.value(x)}};
  }
};

// A product of the epilogue's form into one matrix, without a residual; the caller has checked that.  parts: of f32, as
// `multiply` takes them.
template <class T, class Epilogue>
void multiply_with(const Matmul<T>& p, int parts, const Epilogue& epilogue) {
  if (p.m * p.n * p.batch == 0) return;
  if constexpr (std::is_same_v<T, bf16>) {
    run_matmul<TensorCoreKernels>(p, epilogue);
  } else if constexpr (std::is_same_v<T, double>) {
    run_matmul<PlainKernels<double, 64>, false>(p, epilogue);
  } else {
    if (parts == 1) return run_matmul<PartsKernels<1>, false>(p, epilogue);
    if (parts == 2) return run_matmul<PartsKernels<2>, false>(p, epilogue);
    if (parts == 3) return run_matmul<PartsKernels<3>, false>(p, epilogue);
    if (large_tiles_fill_the_card(p))
      run_matmul<PlainKernels<float, 128>>(p, epilogue);
    else
      run_matmul<PlainKernels<float, 64>>(p, epilogue);
  }
}

}  // namespace orrery::cuda
