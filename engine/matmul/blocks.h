// Tiles of products for 512-bit vectors, after Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication" (2008), and Van Zee and van de Geijn, "BLIS" (2015).
//
// Panels.  The innermost kernel adds A (8, depth) B (depth, 3 vectors) to a piece of C that stays in 24 of the 32
// registers.  It reads both factors from packed panels, where what one step of the depth needs lies side by side:
// 8 elements of A, each spread over a vector by its load, and 3 vectors of B.  Packing transposes as needed, so that
// one kernel serves the four forms of a product.
//
// Blocks.  A block of A, at most 512 rows by 2 KB of the depth, is packed once.  Each panel of B, 96 KB, is then packed
// and meets all panels of that block while it is in the level-2 cache.  Where A comes from hardly matters, because a
// step reads only 32 bytes of it in 24 cycles: the block may fill the level-2 cache and stream from the next.  So a
// packed element of B serves 512 rows, one of A all columns of the tile, and 4 to 5 % of the time goes into packing.
// The depth is long because every block reads and writes C once.
//
// Completion is told of 4 panels of columns at a time, 512 x 192 elements that are still near the core.
//
// Measured in f32 on a Zen 4, one vector multiplication a cycle, so at most 117 GFLOP/s a core: the kernel alone 117;
// the products of GPT-2 with 512 tokens 106 (OpenBLAS 0.3.21: 100), of the small GPTs for characters 106 to 108 (98 to
// 101); on two cores 216, 218 and 207 (204, 202, 195).  Kernels of 14 x 2, 12 x 2 and 6 x 4 vectors, a depth of 1, 1.5
// and 3 KB and blocks of 256 rows were slower by 1 to 3 %, and prefetching A or the next panel of B made no difference.
// 8 rows and 48 columns also leave no remainder on most widths of models.
// On an Emerald Rapids, two multiplications a cycle and at most 177: the kernel alone 170, the products 143 to 152, for
// packing then takes 9 %; blocks of 1,024 rows and 2 x 2 tiles changed less than 2 %.
//
// Every element of C is the sum of its products in the order of the depth, cut into pieces that depend on k alone; so
// its bits depend neither on the tile nor on its place in it.
//
// Numbers N say what a panel holds and how it is multiplied:
//   N::Sum, N::Element     what C and what A and B consist of; a place of a panel is as large as a Sum
//   N::elements            how many elements of the depth lie in one place
//   N::down(x)             a vector of places, one after another in the depth, of elements that are so in memory
//   N::across<n>(x, stride, y)   n places side by side, at one depth, to y; the next depth lies `stride` further
//   N::place(x, step, n)   one place, of n elements `step` apart; those that it lacks are zeros
//   N::spread(x)           a vector of one place in all lanes
//   N::add(sums, b, a)     sums + the products of two vectors of places
#pragma once

#include "engine/attention/vectors.h"
#include "engine/matmul/few_rows.h"
#include "engine/matmul/tile.h"
#include "engine/matmul/widened.h"

namespace orrery::detail::matmul {
namespace {

using namespace attention;  // vectors.h

constexpr int panel_rows = 8, panel_vectors = 3;
constexpr int64_t most_rows = 512, depth_bytes = 2048, completed_panels = 4;
template <class T>
constexpr int panel_columns = lanes<T>* panel_vectors;
template <class T>
constexpr int64_t most_depth = depth_bytes / int64_t{sizeof(T)};

// The length of the fewest equal pieces of n of at most `most`, in multiples of `step`; at least one step.
int64_t even_piece(int64_t n, int64_t most, int64_t step) {
  const int64_t pieces = maximum((n + most - 1) / most, 1);
  return maximum(round_up((n + pieces - 1) / pieces, step), step);
}

// ---- packing

template <class N>
int64_t places(int64_t elements) {
  return (elements + N::elements - 1) / N::elements;
}

// One factor: element i of a panel at depth k is at data[k * stride + i] if the panel lies across the rows in memory,
// else at data[i * stride + k].
template <class T>
struct Source {
  const T* data;
  int64_t stride;
  bool across;
  Source at(int64_t i, int64_t k) const { return {data + (across ? k * stride + i : i * stride + k), stride, across}; }
};

// Full panels, side by side: whole cache lines are read although a panel of A is half a line wide.  The rows are far
// apart in memory, more than the processor foresees.
template <class N, int size, int panels>
void pack_across(const typename N::Element* x, int64_t stride, int64_t depth, typename N::Sum* y) {
  constexpr int64_t ahead = 32;
  for (int64_t k = 0; k < depth; ++k, x += stride * N::elements, y += size)
    unrolled<panels>([&](auto p) __attribute__((always_inline)) {
      unrolled<N::elements>([&](auto e) __attribute__((always_inline)) {
        for (int byte = 0; byte < size * int{sizeof *x}; byte += 64)
          __builtin_prefetch(reinterpret_cast<const char*>(x + (ahead + e) * stride + p * size) + byte);
      });
      N::template across<size>(x + p * size, stride, y + p * depth * size);
    });
}

template <class N, int size>
void pack_down(const typename N::Element* x, int64_t stride, int64_t count, int64_t elements, typename N::Sum* y) {
  using T = typename N::Sum;
  constexpr int w = lanes<T>, step = w * N::elements;
  int64_t k = 0;
  for (; k + step <= elements; k += step, y += w * size)
    for (int i = 0; i < size; i += w) {
      constexpr int part = size < w ? size : w;
      Vector<T> block[w] = {};
      unrolled<part>([&](auto r) __attribute__((always_inline)) {
        if (i + r < count) {
          block[r] = N::down(x + (i + r) * stride + k);
          __builtin_prefetch(x + (i + r + size) * stride + k, 0, 2);
        }
      });
      transpose<T>(block);
      unrolled<w>([&](auto r) __attribute__((always_inline)) {
        __builtin_memcpy(y + r * size + i, &block[r], part * sizeof(T));
      });
    }
  for (; k < elements; k += N::elements, y += size)
    for (int i = 0; i < size; ++i) y[i] = i < count ? N::place(x + i * stride + k, 1, elements - k) : T(0);
}

// Panels of `size` places from `count` rows of `elements`, the last one filled up with zeros: y[panel][k][i].
template <class N, int size>
void pack(const Source<typename N::Element>& x, int64_t count, int64_t elements, typename N::Sum* y) {
  constexpr int together = 4;
  const int64_t depth = places<N>(elements), whole = elements / N::elements;
  for (int64_t i = 0; i < count; i += size) {
    const int64_t here = minimum(size, count - i);
    const auto* const from = x.at(i, 0).data;
    auto* const to = y + i * depth;
    if (!x.across) {
      pack_down<N, size>(from, x.stride, here, elements, to);
    } else if (count - i >= together * size && whole == depth) {
      pack_across<N, size, together>(from, x.stride, depth, to);
      i += (together - 1) * size;
    } else if (here == size && whole == depth) {
      pack_across<N, size, 1>(from, x.stride, depth, to);
    } else {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t e = 0; e < size; ++e)
          to[k * size + e] = e < here ? N::place(from + k * N::elements * x.stride + e, x.stride,
                                                 elements - k * N::elements)
                                      : typename N::Sum(0);
    }
  }
}

// ---- the kernel

template <class T>
struct Panels {  // packed
  const T *a, *b;
  int64_t depth;  // places
};

// C (rows, vectors) = [C +] A B
template <class N, int rows, int vectors>
void kernel(Panels<typename N::Sum> x, typename N::Sum* c, int64_t stride, bool add) {
  using T = typename N::Sum;
  constexpr int w = lanes<T>;
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { __builtin_prefetch(c + r * stride + v * w, 1); });
  });
  Vector<T> sums[rows][vectors] = {};
  for (int64_t k = 0; k < x.depth; ++k, x.a += panel_rows, x.b += panel_columns<T>) {
    Vector<T> right[vectors];
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { right[v] = load(x.b + v * w); });
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      const Vector<T> left = N::spread(x.a + r);
      unrolled<vectors>([&](auto v)
                            __attribute__((always_inline)) { sums[r][v] = N::add(sums[r][v], right[v], left); });
    });
  }
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
      T* const element = c + r * stride + v * w;
      store(element, add ? load(element) + sums[r][v] : sums[r][v]);
    });
  });
}

// A kernel for every number of rows and vectors that a tile may end with.
template <class T>
struct KernelTable {
  void (*of[panel_rows][panel_vectors])(Panels<T>, T*, int64_t, bool);
};
template <class N, int... r>
constexpr KernelTable<typename N::Sum> kernel_table(std::integer_sequence<int, r...>) {
  return {{{kernel<N, r + 1, 1>, kernel<N, r + 1, 2>, kernel<N, r + 1, 3>}...}};
}

// The same for a piece of any size: columns beyond the last whole vector are computed beside C.
template <class N, class T = typename N::Sum>
void multiply_panels(const Panels<T>& x, T* c, int64_t stride, int64_t rows, int64_t columns, bool add) {
  constexpr KernelTable<T> kernels = kernel_table<N>(std::make_integer_sequence<int, panel_rows>());
  const int64_t vectors = (columns + lanes<T> - 1) / lanes<T>;
  const auto run = kernels.of[rows - 1][vectors - 1];
  if (columns == vectors * lanes<T>) return run(x, c, stride, add);
  T aside[panel_rows * panel_columns<T>];
  run(x, aside, panel_columns<T>, false);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) {
      const T sum = aside[r * panel_columns<T> + i];
      c[r * stride + i] = add ? c[r * stride + i] + sum : sum;
    }
}

// ---- blocks

// One block of A, `rows` x `elements`, with all of B beside it.
template <class N, class T = typename N::Sum, class E = typename N::Element>
void multiply_block(const Tile<T, E>& t, Source<E> a, Source<E> b, T* c, int64_t rows, int64_t elements, bool add,
                    T* left, T* right, const auto& completed) {
  constexpr int64_t width = panel_columns<T>;
  const int64_t depth = places<N>(elements);
  pack<N, panel_rows>(a, rows, elements, left);
  for (int64_t column = 0; column < t.n; column += width) {
    const int64_t columns = minimum(width, t.n - column), next = column + width;
    pack<N, panel_columns<T>>(b.at(column, 0), columns, elements, right);
    for (int64_t row = 0; row < rows; row += panel_rows)
      multiply_panels<N>({left + row * depth, right, depth}, c + row * t.stride + column, t.stride,
                         minimum(panel_rows, rows - row), columns, add);
    const int64_t panels = column / width + 1;
    if (panels % completed_panels == 0 || next >= t.n) {
      const int64_t first = (panels - 1) / completed_panels * completed_panels * width;
      completed(first, minimum(next, t.n) - first);
    }
  }
}

int64_t block_rows(int64_t m) { return even_piece(m, most_rows, panel_rows); }
template <class N>
int64_t block_depth(int64_t k) {  // elements
  using T = typename N::Sum;
  return even_piece(k, most_depth<T> * N::elements, lanes<T> * N::elements);
}
// A tile of fewer rows may have longer blocks: 520 rows are two blocks of 264, 512 are one.  One of few rows copies A.
template <class N>
int64_t workspace(int64_t m, int64_t, int64_t k) {
  const int64_t rows = panel_columns<typename N::Sum> + minimum(round_up(m, panel_rows), most_rows);
  return maximum(places<N>(block_depth<N>(k)) * rows, few_rows * k);
}

template <class N, class T = typename N::Sum, class E = typename N::Element>
void multiply_tile(const Tile<T, E>& t, const Completion& completion, T* workspace) {
  const int64_t rows = block_rows(t.m), depth = block_depth<N>(t.k);
  if (t.m <= few_rows && t.b.transposed) {
    multiply_tile_of_few_rows<N>(t, depth, workspace);
    if (completion.block) completion.block(completion.object, 0, t.m, 0, t.n);
    return;
  }
  const Source<E> a = {t.a.data, t.a.stride, t.a.transposed}, b = {t.b.data, t.b.stride, !t.b.transposed};
  T *const right = workspace, *const left = right + places<N>(depth) * panel_columns<T>;
  for (int64_t row = 0; row < t.m; row += rows)
    for (int64_t k = 0; k == 0 || k < t.k; k += depth) {  // once for k = 0, whose product is zero
      const int64_t rows_here = minimum(rows, t.m - row);
      multiply_block<N>(t, a.at(row, k), b.at(0, k), t.c + row * t.stride, rows_here, minimum(depth, t.k - k),
                     k > 0 || t.accumulate, left, right, [&](int64_t column, int64_t columns) {
                       if (completion.block && k + depth >= t.k)
                         completion.block(completion.object, row, rows_here, column, columns);
                     });
    }
}

}  // namespace
}  // namespace orrery::detail::matmul
