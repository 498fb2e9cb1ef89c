// Products with an activation F as epilogue, for dense feed-forwards on a GPU. Each F's formula
// file compiles them, so their kernels are kept few: only products of bf16 and f32 apply F to sums
// in registers. Products of f64, of f32 split into bf16 terms, and with split-K write sums; a
// second kernel applies F.
#pragma once

#include <type_traits>

#include "cuda/matmul/bf16_split.cuh"
#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/tensor_core_kernels.cuh"
#include "engine/math/approx_float.h"

namespace orrery::cuda {

// Returns x rounded to T.
template <class T>
__device__ Arithmetic<T> as_stored(Arithmetic<T> x) {
  if constexpr (std::is_same_v<T, bf16>)
    return lower_of_pair(round_pair(x, 0.f));  // one instruction on a GPU
  else
    return x;
}

// Code for warp groups, whose epilogues are bound by instructions, uses the short form of a formula that has one.
template <class T, class F>
concept HasShortForm = std::is_same_v<T, bf16> && requires(const F& f) {
  f.short_form(0.f);
};

// C becomes z = A B^T + bias, rounded to T; `second` becomes F(z) of the rounded z.
template <class T, class F>
struct Activated {
  using A = Arithmetic<T>;
  static constexpr bool b_transposed = true;
  static constexpr const T* per_element = nullptr;
  F f;
  T* second;
  const T* per_column;  // the bias

  __device__ Values<A, 2> operator()(A sum, A bias, A) const {
    return of_rounded(as_stored<T>(per_column ? sum + bias : sum), A());
  }
  __device__ Values<A, 2> of_rounded(A z, A) const {
    if constexpr (HasShortForm<T, F>)
      if (warp_groups()) return {{z, f.short_form(z)[0]}};
    return {{z, to_float(f.value(FormulaFloat<T>(z)))}};
  }
};

// da = A B, rounded to T, is not stored: C becomes dz = F'(z) da and `second` a = F(z), as
// derived in nn/feed_forwards/dense.cpp.
template <class T, class F>
struct ActivatedBackward {
  using A = Arithmetic<T>;
  static constexpr bool b_transposed = false;
  static constexpr const T* per_column = nullptr;
  F f;
  T* second;
  const T* per_element;  // z

  __device__ Values<A, 2> operator()(A da, A, A z) const { return of_rounded(as_stored<T>(da), z); }
  __device__ Values<A, 2> of_rounded(A da, A z) const {
    if constexpr (HasShortForm<T, F>)
      if (warp_groups()) {
        const auto [a, slope] = f.short_form(z).value;
        return {{slope * da, a}};
      }
    const FormulaFloat<T> x = z;
    return {{to_float(f.derivative(x)) * da, to_float(f.value(x))}};
  }
};

// Queues a product of the epilogue's form into one matrix without residual, which the caller has
// checked. terms: bf16 terms of f32, as in `multiply`.
template <class T, class Epilogue>
void multiply_with(const Matmul<T>& p, int terms, const Epilogue& epilogue) {
  if (p.m * p.n * p.batch == 0) return;
  if constexpr (std::is_same_v<T, bf16>) {
    run_matmul<TensorCoreKernels<256>>(p, epilogue);  // hidden layers are wide
  } else if constexpr (std::is_same_v<T, double>) {
    run_matmul<PlainKernels<double, 64>, false>(p, epilogue);
  } else {
    if (terms == 1) return run_matmul<SplitKernels<1>, false>(p, epilogue);
    if (terms == 2) return run_matmul<SplitKernels<2>, false>(p, epilogue);
    if (terms == 3) return run_matmul<SplitKernels<3>, false>(p, epilogue);
    if (large_tiles_fill_the_gpu(p))
      run_matmul<PlainKernels<float, 128>>(p, epilogue);
    else
      run_matmul<PlainKernels<float, 64>>(p, epilogue);
  }
}

}  // namespace orrery::cuda
