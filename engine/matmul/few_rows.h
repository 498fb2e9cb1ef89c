// Tiles of at most four rows whose B is stored transposed, like the weights of a layer. Generating
// a text token by token multiplies each weight once and is bound by memory. Packing would write and
// read B once more; here each row of B goes from memory through registers. 16 x 16 elements (8 x 8
// of double) are transposed in registers, so that a vector of sums holds 16 columns of C. Sums
// follow the depth in the chunks of blocks.h, so their bits do not depend on the number of rows.
#pragma once

#include "engine/matmul/bf16_widen.h"
#include "engine/matmul/tile.h"
#include "engine/simd/vectors.h"

namespace orrery::detail::matmul {
namespace {

constexpr int64_t few_rows = 4;

// Loads `elements` of each of `width` rows of B, from x on, as columns of groups: block[k][row].
// Rows beyond `rows` are zero. N is a number type of blocks.h.
template <class N, bool whole, class T = typename N::Accumulator>
[[gnu::always_inline]] inline void load_columns(const typename N::Element* x, int64_t stride, int64_t rows,
                                                int64_t elements, Vector<T> (&block)[lanes<T>]) {
  constexpr int w = lanes<T>;
  unrolled<w>([&](auto r) __attribute__((always_inline)) {
    if constexpr (whole) {
      block[r] = N::down(x + r * stride);
      // Prefetches the next rows, which follow in memory, into the level-2 cache.
      __builtin_prefetch(x + (r + w) * stride, 0, 2);
    } else {
      T buffer[w] = {};
      if (r < rows)
        for (int64_t k = 0; k < elements; k += N::elements)
          buffer[k / N::elements] = N::group(x + r * stride + k, 1, elements - k);
      block[r] = load(buffer);
    }
  });
  transpose<T>(block);
}

// C (rows, width) = [C +] A B^T for `width` rows of B, `columns` of which exist; A: [group][rows].
template <class N, int rows, class T = typename N::Accumulator>
void multiply_few_rows(const T* a, const typename N::Element* b, int64_t stride, int64_t columns, int64_t elements,
                       T* c, int64_t c_stride, bool add) {
  constexpr int w = lanes<T>, step = w * N::elements;
  Vector<T> sums[rows] = {};
  const auto add_column = [&](int64_t group, Vector<T> column) __attribute__((always_inline)) {
    unrolled<rows>([&](auto i) __attribute__((always_inline)) {
      sums[i] = N::add(sums[i], column, N::broadcast(a + group * rows + i));
    });
  };
  int64_t k = 0;
  Vector<T> block[w];
  for (; k + step <= elements && columns == w; k += step) {
    load_columns<N, true>(b + k, stride, w, step, block);
    unrolled<w>([&](auto i) __attribute__((always_inline)) { add_column(k / N::elements + i, block[i]); });
  }
  for (; k < elements; k += step) {
    const int64_t here = minimum(step, elements - k);
    load_columns<N, false>(b + k, stride, columns, here, block);
    for (int64_t i = 0; i * N::elements < here; ++i) add_column(k / N::elements + i, block[i]);
  }
  for (int i = 0; i < rows; ++i)
    for (int64_t e = 0; e < columns; ++e) {
      T& element = c[i * c_stride + e];
      element = add ? element + sums[i][e] : sums[i][e];
    }
}

// `chunk`: the depth after which sums are added to C, whole groups. The workspace holds A, at most
// few_rows * k groups.
template <class N, class T = typename N::Accumulator, class E = typename N::Element>
void multiply_tile_of_few_rows(const Tile<T, E>& t, int64_t chunk, T* workspace) {
  using Kernel = void (*)(const T*, const E*, int64_t, int64_t, int64_t, T*, int64_t, bool);
  constexpr Kernel kernels[few_rows] = {multiply_few_rows<N, 1>, multiply_few_rows<N, 2>, multiply_few_rows<N, 3>,
                                        multiply_few_rows<N, 4>};
  const int64_t down = t.a.transposed ? t.a.stride : 1, across = t.a.transposed ? 1 : t.a.stride;
  for (int64_t k = 0; k < t.k; k += N::elements)
    for (int64_t i = 0; i < t.m; ++i)
      workspace[k / N::elements * t.m + i] = N::group(t.a.data + k * down + i * across, down, t.k - k);
  for (int64_t column = 0; column < t.n; column += lanes<T>)
    for (int64_t k = 0; k < t.k; k += chunk)
      kernels[t.m - 1](workspace + k / N::elements * t.m, t.b.data + column * t.b.stride + k, t.b.stride,
                       minimum(lanes<T>, t.n - column), minimum(chunk, t.k - k), t.c + column, t.stride,
                       k > 0 || t.accumulate);
}

}  // namespace
}  // namespace orrery::detail::matmul
