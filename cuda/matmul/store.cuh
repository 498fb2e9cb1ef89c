// Epilogue and stores of a warp's sums on tensor cores.
//
// After a product of 16 x 8 each of the four lanes of a quad holds two adjacent columns of a row.
// Four products side by side are 32 columns, which as bf16 are four chunks of 16 bytes:
//
//                  product 0   1    2    3              chunk 0   1    2    3
//         lane 0        w00  w01  w02  w03     lane 0       w00  w10  w20  w30
//         lane 1        w10  w11  w12  w13     lane 1       w01  w11  w21  w31
//
// A word w is two elements. A lane that holds the words of one product, in lane order, holds a
// chunk. So the quad transposes its words before stores and after loads, in four shuffles. Two
// adjacent f32 are 8 bytes and are stored directly: a quad fills 32 bytes.
//
// Column values of the epilogue are loaded once, element values per row, before the first is used.
// The common case (aligned rows, no accumulation) is compiled separately: without branches between
// them, the rows of a warp are stored concurrently and do not wait for each other's shuffles.
#pragma once

#include <type_traits>

#include "cuda/matmul/matmul.cuh"
#include "cuda/matmul/tensor_core.cuh"

namespace orrery::cuda {

// x[b] of lane q becomes x[q] of lane b of the same quad.
__device__ inline void transpose_quad(uint32_t (&x)[4], int lane) {
#pragma unroll
  for (int flip = 1; flip < 4; flip *= 2) {
    const bool upper = lane & flip;
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      if (b & flip) continue;
      const uint32_t other = __shfl_xor_sync(~0u, upper ? x[b] : x[b + flip], flip);
      x[b] = upper ? other : x[b];
      x[b + flip] = upper ? x[b + flip] : other;
    }
  }
}

// A lane's elements of 32 columns of a row, two sixteens `Apart` columns apart: two adjacent ones
// of each of four products. In memory they begin at `lane_column`; `left` columns from there are
// before the edge, 0 if the row is not. `vectors`: all are aligned and whole.
template <int Apart>
struct QuadColumns {
  float value[4][2];

  // Returns the first column of product j.
  static __device__ constexpr int of_product(int j) { return j / 2 * Apart + j % 2 * 8; }
  template <class Result>
  static __device__ int lane_column(int lane) {
    return sizeof(Result) == 2 ? of_product(lane % 4) : lane % 4 * 2;
  }
  __device__ void load(const float* from, int left, bool vectors, int) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      value[j][0] = value[j][1] = 0;
      const int column = of_product(j);
      if (vectors && column < left) {
        const auto both = *reinterpret_cast<const Vector<float, 2>*>(from + column);
        value[j][0] = both.value[0], value[j][1] = both.value[1];
      } else {
        if (column < left) value[j][0] = from[column];
        if (column + 1 < left) value[j][1] = from[column + 1];
      }
    }
  }
  template <class Result>
  __device__ void add(const Result* from, int left, bool vectors, int lane) {
    QuadColumns other;
    other.load(from, left, vectors, lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) value[j][0] += other.value[j][0], value[j][1] += other.value[j][1];
  }

  __device__ void store(float* to, int left, bool vectors, int) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = of_product(j);
      if (vectors) {
        if (column < left) *reinterpret_cast<Vector<float, 2>*>(to + column) = {{value[j][0], value[j][1]}};
      } else {
        if (column < left) to[column] = value[j][0];
        if (column + 1 < left) to[column + 1] = value[j][1];
      }
    }
  }

  __device__ void load(const bf16* from, int left, bool vectors, int lane) {
    Vector<uint32_t, 4> words = {};
    if (vectors) {
      if (left > 0) words = *reinterpret_cast<const Vector<uint32_t, 4>*>(from);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (e < left) words.value[e / 2] |= uint32_t{from[e].bits} << e % 2 * 16;
    }
    transpose_quad(words.value, lane);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      value[j][0] = lower_of_pair(words.value[j]), value[j][1] = upper_of_pair(words.value[j]);
  }
  __device__ void store(bf16* to, int left, bool vectors, int lane) const {
    Vector<uint32_t, 4> words;
#pragma unroll
    for (int j = 0; j < 4; ++j) words.value[j] = round_pair(value[j][0], value[j][1]);
    transpose_quad(words.value, lane);
    if (vectors) {
      if (left > 0) *reinterpret_cast<Vector<uint32_t, 4>*>(to) = words;
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (e < left) {
          bf16 element;
          element.bits = static_cast<uint16_t>(words.value[e / 2] >> e % 2 * 16);
          to[e] = element;
        }
    }
  }
};

// Stores the warp's rows of C from (row, column) of the tile on: products First to First + N - 1 of
// each row of `sum`. Sixteens of rows are `RowsApart` apart, sixteens of columns `Apart`.
// RegistersLeft: there are enough registers for many rows at once.
template <int Apart, int RowsApart, int First, int N, bool RegistersLeft = true, class T, class Result, int Sixteens,
          int All, class Epilogue>
__device__ void store_sums(const MatmulPlan<T, Result>& plan, const BlockTile<T>& tile,
                           const float (&sum)[Sixteens][All][4], int row, int column, int lane,
                           const Epilogue& epilogue) {
  using Columns = QuadColumns<Apart>;
  constexpr int groups = N / 4, next = 2 * Apart;  // a group is 32 columns
  const Matmul<T, Result>& p = plan.product;
  Result* const c = tile.c(p);
  const int64_t columns = p.c[tile.output].columns, first = tile.column + column;
  const int columns_left = tile.columns_left - column;
  const int rows_left = tile.rows_left - row - lane / 4, lane_column = Columns::template lane_column<Result>(lane);
  const int64_t first_element = (tile.batch * p.m + tile.row + row + lane / 4) * columns + first + lane_column;
  // The arguments are bool or std::bool_constant.
  const auto store_rows = [&](auto vectors, auto accumulates, auto has_element) {
    float per_column[N][2] = {};
    if (epilogue.per_column) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int offset = Columns::of_product(j) + lane % 4 * 2, left = columns_left - offset;
        const Result* const from = epilogue.per_column + tile.first_column + first + offset;
        Vector<Result, 2> both = {};
        if (vectors) {
          if (left > 0) both = *reinterpret_cast<const Vector<Result, 2>*>(from);
        } else {
          if (left > 0) both.value[0] = from[0];
          if (left > 1) both.value[1] = from[1];
        }
        per_column[j][0] = static_cast<float>(both.value[0]), per_column[j][1] = static_cast<float>(both.value[1]);
      }
    }
#pragma unroll
    for (int eight = 0; eight < 2 * Sixteens; ++eight) {  // rows of products; a quad has one of them
      const int down = eight / 2 * RowsApart + eight % 2 * 8;
      const int left = down < rows_left ? columns_left - lane_column : 0;
      const int64_t element = first_element + down * columns;
      Columns sums[groups], per_element[groups] = {};
#pragma unroll
      for (int g = 0; g < groups; ++g)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) sums[g].value[j][e] = sum[eight / 2][First + g * 4 + j][eight % 2 * 2 + e];
      if (accumulates)
#pragma unroll
        for (int g = 0; g < groups; ++g) sums[g].add(c + element + g * next, left - g * next, vectors, lane);
      if (!AddsElement<Epilogue> && has_element)
#pragma unroll
        for (int g = 0; g < groups; ++g)
          per_element[g].load(epilogue.per_element + element + g * next, left - g * next, vectors, lane);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        Columns stored, second;
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const auto done =
                finished(epilogue, sums[g].value[j][e], per_column[g * 4 + j][e], per_element[g].value[j][e]);
            stored.value[j][e] = done[0], second.value[j][e] = done[1];
          }
        if constexpr (AddsElement<Epilogue>)
          if (has_element) stored.add(epilogue.per_element + element + g * next, left - g * next, vectors, lane);
        stored.store(c + element + g * next, left - g * next, vectors, lane);
        if constexpr (FillsSecond<Epilogue>)
          second.store(epilogue.second + element + g * next, left - g * next, vectors, lane);
      }
    }
  };
  const bool has_element = epilogue.per_element, general = !RegistersLeft || !plan.vectors_c || p.accumulate;
  if (general)
    store_rows(plan.vectors_c, p.accumulate, has_element);
  else if constexpr (!AddsElement<Epilogue>)  // these always or never read elements
    store_rows(std::true_type(), std::false_type(), std::bool_constant<ReadsElements<Epilogue>>());
  else if (has_element)
    store_rows(std::true_type(), std::false_type(), std::true_type());
  else
    store_rows(std::true_type(), std::false_type(), std::false_type());
}

}  // namespace orrery::cuda
