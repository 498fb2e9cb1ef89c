// The second kernel of a split-K product. Separate blocks compute the sums of each K split; this
// kernel adds them in order and calls the epilogue.
#pragma once

#include <cstdint>

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/matmul.h"
#include "cuda/runtime/launch.cuh"

namespace orrery::cuda {

inline constexpr int matmul_threads = 256;

template <class T, int N>
struct alignas(sizeof(T) * N) Vector {  // 8 or 16 bytes in one access
  T value[N];
};

// Adds the K splits, in order, for N consecutive elements of a row of C from element i on.
template <int N, class T, class Result, class Epilogue>
__device__ void add_splits_at(const Matmul<T, Result>& p, const Arithmetic<T>* sums, int64_t splits, int64_t elements,
                              int64_t i, const Epilogue& epilogue) {
  Arithmetic<T> sum[N] = {};
#pragma unroll 4
  for (int64_t split = 0; split < splits; ++split) {
    const auto partial = *reinterpret_cast<const Vector<Arithmetic<T>, N>*>(sums + split * elements + i);
#pragma unroll
    for (int e = 0; e < N; ++e) sum[e] += partial.value[e];
  }
  // A GPU divides 32-bit integers several times faster than 64-bit ones.
  const bool few = elements <= int64_t{0x7fffffff};
  const int64_t row = few ? static_cast<uint32_t>(i) / static_cast<uint32_t>(p.n) : i / p.n;
  int64_t column = i - row * p.n;
  int output = 0;
  for (; column >= p.c[output].columns; ++output) column -= p.c[output].columns;
  const int64_t index = row * p.c[output].columns + column;
  Vector<Result, N>* const to = reinterpret_cast<Vector<Result, N>*>(p.c[output].data + index);
  Vector<Result, N> c, second;
  if (p.accumulate) c = *to;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const auto done = finish<Result>(epilogue, p.accumulate ? static_cast<Arithmetic<T>>(c.value[e]) + sum[e] : sum[e],
                                     i - row * p.n + e, index + e);
    c.value[e] = done.stored, second.value[e] = done.second;
  }
  *to = c;
  if constexpr (FillsSecond<Epilogue>) *reinterpret_cast<Vector<Result, N>*>(epilogue.second + index) = second;
}

// Computes C from the sums of the K splits, and A's row sums, whose splits are stored after those
// of C. vectors: rows of C and of the epilogue's arrays begin at multiples of 16 bytes.
template <class T, class Result, class Epilogue>
__global__ void __launch_bounds__(matmul_threads)
    add_splits_kernel(const __grid_constant__ Matmul<T, Result> p, const Arithmetic<T>* sums, int64_t splits,
                      bool vectors, const Epilogue epilogue) {
  constexpr int vector = 16 / sizeof(Arithmetic<T>);
  const int64_t elements = p.batch * p.m * p.n, step = int64_t{gridDim.x} * matmul_threads;
  const int64_t first = int64_t{blockIdx.x} * matmul_threads + threadIdx.x;
  wait_for_earlier();
  allow_next();
  if (vectors)
    for (int64_t i = first * vector; i < elements; i += step * vector)
      add_splits_at<vector>(p, sums, splits, elements, i, epilogue);
  else
    for (int64_t i = first; i < elements; i += step) add_splits_at<1>(p, sums, splits, elements, i, epilogue);
  if (!p.row_sums) return;
  for (int64_t i = first; i < p.m; i += step) {
    Arithmetic<T> sum = p.accumulate_row_sums ? p.row_sums[i] : 0;
    for (int64_t split = 0; split < splits; ++split) sum += sums[splits * elements + split * p.m + i];
    p.row_sums[i] = sum;
  }
}

}  // namespace orrery::cuda
