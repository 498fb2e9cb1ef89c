// Tiles of at most four rows whose B is stored transposed, as a layer's weights are: a text that is written token by
// token multiplies each weight once and waits for memory alone.  Packing would write and read B once more; here every
// row of B goes from memory through the registers.  16 x 16 elements (8 x 8 of double) are turned round in registers,
// so that a vector of sums holds 16 columns of C and each is taken in the order of the depth, in the pieces of
// kernels_avx512.cpp: the same bits whatever the number of rows.
#pragma once

#include "engine/attention/vectors.h"
#include "engine/matmul/tile.h"
#include "engine/matmul/widened.h"

namespace orrery::detail::matmul {
namespace {

constexpr int64_t few_rows = 4;

// `count` elements of each of `width` rows of B, from x on, as columns: block[k][row].  Rows beyond `rows` are zero.
template <class T, class E, bool whole>
[[gnu::always_inline]] inline void load_columns(const E* x, int64_t stride, int64_t rows, int64_t count,
                                                Vector<T> (&block)[lanes<T>]) {
  constexpr int w = lanes<T>;
  unrolled<w>([&](auto r) __attribute__((always_inline)) {
    if constexpr (whole) {
      block[r] = load_widened(x + r * stride);
      // The rows after these follow them in memory: what they need has then reached the level-2 cache.
      __builtin_prefetch(x + (r + w) * stride, 0, 2);
    } else {
      T aside[w] = {};
      if (r < rows)
        for (int64_t k = 0; k < count; ++k) aside[k] = widened(x[r * stride + k]);
      block[r] = load(aside);
    }
  });
  transpose<T>(block);
}

// C (rows, width) = [C +] A B^T for `width` rows of B, of which `columns` there are.  A is stored [depth][rows].
template <class T, class E, int rows>
void multiply_few_rows(const T* a, const E* b, int64_t stride, int64_t columns, int64_t depth, T* c, int64_t c_stride,
                       bool add) {
  constexpr int w = lanes<T>;
  Vector<T> sums[rows] = {};
  const auto add_column = [&](int64_t k, Vector<T> column) __attribute__((always_inline)) {
    unrolled<rows>([&](auto i) __attribute__((always_inline)) { sums[i] += column * splat(a[k * rows + i]); });
  };
  int64_t k = 0;
  Vector<T> block[w];
  for (; k + w <= depth && columns == w; k += w) {
    load_columns<T, E, true>(b + k, stride, w, w, block);
    unrolled<w>([&](auto i) __attribute__((always_inline)) { add_column(k + i, block[i]); });
  }
  for (; k < depth; k += w) {
    const int64_t count = minimum(w, depth - k);
    load_columns<T, E, false>(b + k, stride, columns, count, block);
    for (int64_t i = 0; i < count; ++i) add_column(k + i, block[i]);
  }
  for (int i = 0; i < rows; ++i)
    for (int64_t e = 0; e < columns; ++e) {
      T& element = c[i * c_stride + e];
      element = add ? element + sums[i][e] : sums[i][e];
    }
}

// `piece`: the depth after which sums are added to C.  The workspace holds A, few_rows * k elements.
template <class T, class E>
void multiply_tile_of_few_rows(const Tile<T, E>& t, int64_t piece, T* workspace) {
  using Kernel = void (*)(const T*, const E*, int64_t, int64_t, int64_t, T*, int64_t, bool);
  constexpr Kernel kernels[few_rows] = {multiply_few_rows<T, E, 1>, multiply_few_rows<T, E, 2>,
                                        multiply_few_rows<T, E, 3>, multiply_few_rows<T, E, 4>};
  for (int64_t k = 0; k < t.k; ++k)
    for (int64_t i = 0; i < t.m; ++i)
      workspace[k * t.m + i] = widened(t.a.data[t.a.transposed ? k * t.a.stride + i : i * t.a.stride + k]);
  for (int64_t column = 0; column < t.n; column += lanes<T>)
    for (int64_t k = 0; k == 0 || k < t.k; k += piece)
      kernels[t.m - 1](workspace + k * t.m, t.b.data + column * t.b.stride + k, t.b.stride,
                       minimum(lanes<T>, t.n - column), minimum(piece, t.k - k), t.c + column, t.stride,
                       k > 0 || t.accumulate);
}

}  // namespace
}  // namespace orrery::detail::matmul
