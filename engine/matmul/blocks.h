// Tiles of products for vectors of 512 or 256 bits, after Goto and van de Geijn, "Anatomy of
// high-performance matrix multiplication" (2008), and Van Zee and van de Geijn, "BLIS" (2015).
//
// Panels. The innermost kernel adds A (8, depth) B (depth, 3 vectors) to a block of C; the depth is
// K, the summed dimension. The block is held in 24 of 32 registers; with AVX2, its 4 rows in 12 of
// 16. The values of one step of the depth are contiguous in a packed panel: elements of A, each
// broadcast by its load, and 3 vectors of B.
// Packing transposes as needed, so one kernel serves the four forms of a product. A factor that
// meets few panels of the other is read in place, since packing would cost more than it saves.
//
// Blocks. A block of A, at most 512 rows by 2 KB of the depth, is packed once. Each panel of B (96
// KB) is then packed and multiplied with all panels of the block from the L2 cache. The block may
// fill L2 and stream from the next level, because a step reads only 32 bytes of A for 24
// multiplications. So a packed element of B serves 512 rows, one of A all columns of the tile. The
// depth is long because every block reads and writes C once.
//
// Prefetching. A core waits for memory: the next panel of B, and the block of C, which the panels
// streaming through L1 have evicted. The kernel prefetches both line by line between its steps. All
// at once, they would fill the few miss buffers and delay the panels.
// Completion is called for 4 panels of columns at a time: 512 x 192 elements, still in near caches.
//
// Measured in f32, GFLOP/s per core (naive: C prefetched at once, B not at all, A always packed).
// Emerald Rapids, two vector multiplications a cycle, peak about 180: kernel alone 175; products of
// 100 million multiplications or more 155 to 163 (naive 138 to 152, MKL 158 to 171); 8192 x 288 by
// 288 x 32 of a convolution 143 (naive 106). Two cores wait least with as many tiles as cores.
// Zen 4, one multiplication a cycle, peak 117: naive 106 (OpenBLAS 0.3.21: 100). Kernels of 14 x 2,
// 12 x 2 and 6 x 4 vectors, depths of 1, 1.5 and 3 KB and blocks of 256 rows were 1 to 3 % slower.
// 8 rows and 48 columns divide most model widths. Zen 3 with AVX2, peak about 110:
// 92 for 1024 x 2048 by 2048 x 1024, 97 for 768 x 128 by 128 x 512, 91 for 768 x 64 by 64 x 64
// (OpenBLAS: 88, 85, 68); depths of 1 and 1.5 KB make no difference.
//
// Every element of C sums its products in the order of the depth, in chunks that depend on k alone.
// So its bits do not depend on the tile, on the position in it or on the width of the vectors.
//
// A number type N defines what a panel holds and how it is multiplied:
//   N::Accumulator, N::Element  types of C, and of A and B; a group of a panel is as large as an Accumulator
//   N::elements                 number of elements of the depth in one group
//   N::down(x)                  a vector of consecutive groups of the depth, adjacent in memory
//   N::across<n>(x, stride, y)  writes n groups side by side, at one depth, to y; depths are `stride` apart
//   N::group(x, step, n)        one group of n elements, `step` apart; missing elements are zeros
//   N::broadcast(x)             a vector of one group in all lanes
//   N::add(sums, b, a)          sums + the products of two vectors of groups
// Types with several elements per group also make groups of sums, which attention multiplies:
//   N::rounded(x, y)            of two vectors that are adjacent in memory, along the depth
//   N::joined(x, y)             of two vectors at consecutive depths
#pragma once

#include "engine/matmul/bf16_widen.h"
#include "engine/matmul/few_rows.h"
#include "engine/matmul/tile.h"
#include "engine/simd/vectors.h"

namespace orrery::detail::matmul {
namespace {

using namespace simd;

#if defined(__AVX512F__)
constexpr int panel_rows = 8, panel_vectors = 3;  // 24 sums of 32 registers
#else
constexpr int panel_rows = 4, panel_vectors = 3;  // 12 sums of 16 registers
#endif
constexpr int64_t max_rows = rows_of_packed_b, depth_bytes = 2048, completed_panels = 4;
template <class T>
constexpr int panel_columns = lanes<T>* panel_vectors;
template <class T>
constexpr int64_t max_depth = depth_bytes / int64_t{sizeof(T)};

// Returns the length of the fewest equal chunks of n: whole steps, from one to `max_size`.
int64_t even_chunk(int64_t n, int64_t max_size, int64_t step) {
  const int64_t chunks = maximum((n + max_size - 1) / max_size, 1);
  return maximum(round_up((n + chunks - 1) / chunks, step), step);
}

// ---- packing

template <class N>
int64_t k_groups(int64_t elements) {
  return (elements + N::elements - 1) / N::elements;
}

// A factor. Element i of a panel at depth k is at data[k * stride + i] if the panel is across the
// rows in memory, else at data[i * stride + k].
template <class T>
struct Source {
  const T* data;
  int64_t stride;
  bool across;
  Source at(int64_t i, int64_t k) const { return {data + (across ? k * stride + i : i * stride + k), stride, across}; }
};

// Packs full panels side by side, to read whole cache lines: a panel of A is half a line wide. Rows
// are too far apart in memory for the hardware prefetcher.
template <class N, int size, int panels>
void pack_across(const typename N::Element* x, int64_t stride, int64_t depth, typename N::Accumulator* y) {
  constexpr int64_t prefetch_rows = 32;
  for (int64_t k = 0; k < depth; ++k, x += stride * N::elements, y += size)
    unrolled<panels>([&](auto p) __attribute__((always_inline)) {
      unrolled<N::elements>([&](auto e) __attribute__((always_inline)) {
        for (int byte = 0; byte < size * int{sizeof *x}; byte += 64)
          __builtin_prefetch(reinterpret_cast<const char*>(x + (prefetch_rows + e) * stride + p * size) + byte);
      });
      N::template across<size>(x + p * size, stride, y + p * depth * size);
    });
}

template <class N, int size, class T = typename N::Accumulator>
void pack_down(const typename N::Element* x, int64_t stride, int64_t count, int64_t elements, T* y) {
  constexpr int w = lanes<T>, step = w * N::elements;
  int64_t k = 0;
  for (; k + step <= elements; k += step, y += w * size)
    for (int i = 0; i < size; i += w) {
      constexpr int used_rows = size < w ? size : w;
      Vector<T> block[w] = {};
      unrolled<used_rows>([&](auto r) __attribute__((always_inline)) {
        if (i + r < count) {
          block[r] = N::down(x + (i + r) * stride + k);
          __builtin_prefetch(x + (i + r + size) * stride + k, 0, 2);
        }
      });
      transpose<T>(block);
      unrolled<w>([&](auto r) __attribute__((always_inline)) {
        __builtin_memcpy(y + r * size + i, &block[r], used_rows * sizeof(T));
      });
    }
  for (; k < elements; k += N::elements, y += size)
    for (int i = 0; i < size; ++i) y[i] = i < count ? N::group(x + i * stride + k, 1, elements - k) : T(0);
}

// Packs `count` rows of `elements` into panels of `size` groups, y[panel][k][i], padded with zeros.
template <class N, int size>
void pack(const Source<typename N::Element>& x, int64_t count, int64_t elements, typename N::Accumulator* y) {
  constexpr int together = 4;
  const int64_t depth = k_groups<N>(elements), whole = elements / N::elements;
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
      constexpr int w = minimum(lanes<typename N::Accumulator>, size);
      const int64_t whole_columns = whole == depth ? here / w * w : 0;
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t e = 0; e < whole_columns; e += w)
          N::template across<w>(from + k * N::elements * x.stride + e, x.stride, to + k * size + e);
        for (int64_t e = whole_columns; e < size; ++e)
          to[k * size + e] = e < here
                                 ? N::group(from + k * N::elements * x.stride + e, x.stride, elements - k * N::elements)
                                 : typename N::Accumulator(0);
      }
    }
  }
}

// ---- the kernel

// A panel of A and one of B. Element i of A at depth k is at a[k * a_step + i], or
// a[i * a_step + k] if `rows_apart`; vector v of B is at b + k * b_step + v.
template <class T>
struct Panels {
  const T* a;
  int64_t a_step;
  bool rows_apart;
  const T* b;
  int64_t b_step;
  int64_t depth;  // groups
};

// A prefetcher of the memory that is needed next, one cache line per call.
class CachePrefetcher {
 public:
  template <class T>
  CachePrefetcher(const Source<T>& x, int64_t count, int64_t depth)
      : address_(reinterpret_cast<const char*>(x.data)),
        lines_(((x.across ? count : depth) * int64_t{sizeof(T)} + line - 1) / line),
        left_(lines_),
        rows_(count <= 0 ? 0
              : x.across ? depth
                         : count),
        step_(x.stride * int64_t{sizeof(T)} - lines_ * line) {}
  [[gnu::always_inline]] void fetch() {
    if (rows_ == 0) return;
    __builtin_prefetch(address_, 0, 2);
    address_ += line;
    if (--left_ == 0) address_ += step_, left_ = lines_, --rows_;
  }

 private:
  static constexpr int64_t line = 64;
  const char* address_;
  int64_t lines_, left_;  // cache lines of a row; those not yet fetched
  int64_t rows_, step_;   // from the end of one row to the next
};

// C (rows, vectors) = [C +] A B
template <class N, bool rows_apart, int rows, int vectors>
void kernel(const Panels<typename N::Accumulator>& x, typename N::Accumulator* c, int64_t stride, bool add,
            CachePrefetcher& prefetcher) {
  using T = typename N::Accumulator;
  constexpr int w = lanes<T>;
  constexpr int64_t steps = 16;  // from one prefetch to the next
  const T *a = x.a, *b = x.b;
  const T* apart[rows];
  for (int r = 0; r < rows; ++r) apart[r] = a + r * x.a_step;
  Vector<T> sums[rows][vectors] = {};
  int64_t k = 0;
  const auto advance = [&](int64_t end) __attribute__((always_inline)) {
    for (; k < end; ++k, b += x.b_step) {
      Vector<T> right[vectors];
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { right[v] = load(b + v * w); });
      unrolled<rows>([&](auto r) __attribute__((always_inline)) {
        const Vector<T> left = N::broadcast(rows_apart ? apart[r] + k : a + r);
        unrolled<vectors>([&](auto v)
                              __attribute__((always_inline)) { sums[r][v] = N::add(sums[r][v], right[v], left); });
      });
      if constexpr (!rows_apart) a += x.a_step;
    }
  };
  // The last stretches prefetch the rows of C; two more give the last row time to arrive.
  constexpr int64_t last_stretches = rows + 2;
  while (k + last_stretches * steps <= x.depth) {
    prefetcher.fetch();
    advance(k + steps);
  }
  const int64_t fewer = minimum(steps, x.depth / last_stretches);
  const T* row = c;
  for (int r = 0; r < rows; ++r, row += stride) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { __builtin_prefetch(row + v * w, 1); });
    advance(k + fewer);
  }
  advance(x.depth);
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
      T* const element = c + r * stride + v * w;
      store(element, add ? load(element) + sums[r][v] : sums[r][v]);
    });
  });
}

// True if the kernels can read the elements in place.
template <class N>
constexpr bool plain = std::is_same_v<typename N::Accumulator, typename N::Element>;

// Kernels for all numbers of rows and vectors, including the remainders at the edges of a tile.
template <class T>
struct KernelTable {
  void (*of[panel_rows][panel_vectors])(const Panels<T>&, T*, int64_t, bool, CachePrefetcher&);
};
template <class N, bool apart, int... r>
constexpr KernelTable<typename N::Accumulator> kernel_table(std::integer_sequence<int, r...>) {
  return {{{kernel<N, apart, r + 1, 1>, kernel<N, apart, r + 1, 2>, kernel<N, apart, r + 1, 3>}...}};
}

// Runs the kernel on a block of any size; a partial last vector is computed in a buffer.
template <class N, class T = typename N::Accumulator>
void multiply_panels(const Panels<T>& x, T* c, int64_t stride, int64_t rows, int64_t columns, bool add,
                     CachePrefetcher& prefetcher) {
  constexpr auto all_rows = std::make_integer_sequence<int, panel_rows>();
  static constexpr KernelTable<T> side_by_side = kernel_table<N, false>(all_rows),
                                  apart = kernel_table<N, plain<N>>(all_rows);
  const int64_t vectors = (columns + lanes<T> - 1) / lanes<T>;
  const auto run = (x.rows_apart ? apart : side_by_side).of[rows - 1][vectors - 1];
  if (columns == vectors * lanes<T>) return run(x, c, stride, add, prefetcher);
  T buffer[panel_rows * panel_columns<T>];
  run(x, buffer, panel_columns<T>, false, prefetcher);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) {
      const T sum = buffer[r * panel_columns<T> + i];
      c[r * stride + i] = add ? c[r * stride + i] + sum : sum;
    }
}

// ---- blocks

// A is read in place if the tile has at most this many panels of columns; B, if it is across and
// the block has at most this many rows.
constexpr int64_t few_panels = 8, few_block_rows = 128;

// Returns the next panel's columns: 3 vectors, but 2 of the last 4, as kernels of 1 are slow.
template <class T>
int64_t next_columns(int64_t columns) {
  const int64_t vectors = (columns + lanes<T> - 1) / lanes<T>;
  return minimum(columns, (vectors == 4 ? 2 : panel_vectors) * lanes<T>);
}

// Multiplies one block of A, `rows` x `elements`, by all columns of B.
template <class N, class T = typename N::Accumulator, class E = typename N::Element>
void multiply_block(const Tile<T, E>& t, Source<E> a, Source<E> b, T* c, int64_t rows, int64_t elements, bool add,
                    T* left, T* right, const auto& completed) {
  const int64_t depth = k_groups<N>(elements);
  const bool pack_a = !plain<N> || t.n > few_panels * panel_columns<T>;
  Panels<T> x = {left, panel_rows, false, right, panel_columns<T>, depth};
  int64_t next_panel = panel_rows * depth;  // elements of A from one panel to the next
  if (pack_a) {
    pack<N, panel_rows>(a, rows, elements, left);
  } else {
    x.a = reinterpret_cast<const T*>(a.data), x.a_step = a.stride, x.rows_apart = !a.across;
    next_panel = a.across ? panel_rows : panel_rows * a.stride;
  }
  int64_t done = 0;
  for (int64_t column = 0, columns; column < t.n; column += columns) {
    columns = next_columns<T>(t.n - column);
    const Source<E> panel = b.at(column, 0);
    const int64_t next = column + columns;
    if (plain<N> && b.across && rows <= few_block_rows && columns % lanes<T> == 0)
      x.b = reinterpret_cast<const T*>(panel.data), x.b_step = b.stride;
    else
      pack<N, panel_columns<T>>(panel, columns, elements, right), x.b = right, x.b_step = panel_columns<T>;
    CachePrefetcher prefetcher(b.at(next, 0), next < t.n ? next_columns<T>(t.n - next) : 0, elements);
    Panels<T> here = x;
    for (int64_t row = 0; row < rows; row += panel_rows, here.a += next_panel)
      multiply_panels<N>(here, c + row * t.stride + column, t.stride, minimum(panel_rows, rows - row), columns, add,
                         prefetcher);
    if (next - done >= completed_panels * panel_columns<T> || next == t.n) {
      completed(done, next - done);
      done = next;
    }
  }
}

int64_t block_rows(int64_t m) { return even_chunk(m, max_rows, panel_rows); }
template <class N>
int64_t block_depth(int64_t k) {  // elements
  using T = typename N::Accumulator;
  return even_chunk(k, max_depth<T> * N::elements, 64 / int64_t{sizeof(T)} * N::elements);  // for any vectors
}
// Smaller tiles may have longer blocks: 520 rows are two of 264, 512 are one. Few rows copy A.
template <class N>
int64_t workspace(int64_t m, int64_t, int64_t k) {
  const int64_t rows = panel_columns<typename N::Accumulator> + minimum(round_up(m, panel_rows), max_rows);
  return maximum(k_groups<N>(block_depth<N>(k)) * rows, few_rows * k);
}

template <class N, class T = typename N::Accumulator, class E = typename N::Element>
void multiply_tile(const Tile<T, E>& t, const Completion& completion, T* workspace) {
  const int64_t rows = block_rows(t.m), depth = block_depth<N>(t.k);
  if (t.m <= few_rows && t.b.transposed) {
    multiply_tile_of_few_rows<N>(t, depth, workspace);
    if (completion.block) completion.block(completion.object, 0, t.m, 0, t.n);
    return;
  }
  const Source<E> a = {t.a.data, t.a.stride, t.a.transposed}, b = {t.b.data, t.b.stride, !t.b.transposed};
  T *const right = workspace, *const left = right + k_groups<N>(depth) * panel_columns<T>;
  for (int64_t row = 0; row < t.m; row += rows)
    for (int64_t k = 0; k < t.k; k += depth) {
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
