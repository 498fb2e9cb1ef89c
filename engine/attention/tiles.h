// Products of tiles, and the memory layouts of their operands.
//
// A number type N (engine/matmul/blocks.h defines N::down, N::across, ...) has N::elements elements,
// consecutive in the depth (K), in each group of an operand. f32 and f64 are read in place. bf16 is
// widened to f32 tile by tile; each element then serves 64 or more products from the cache. Or it is
// multiplied in pairs: rows of the left operand in place, weights and score gradients rounded to bf16.
#pragma once

#include "engine/matmul/bf16_widen.h"

namespace orrery::detail::attention {
namespace {

using namespace simd;

// Row r of a matrix begins at data + r * stride.
template <class A>
struct Matrix {
  A* data;
  int64_t stride;
  A* row(int64_t r) const { return data + r * stride; }
};

using matmul::load_widened, matmul::store_rounded;

template <class N>
using Accumulator = typename N::Accumulator;
template <class N>
using Element = typename N::Element;
// True if the operands are multiplied as they are stored.
template <class N>
constexpr bool plain = std::is_same_v<Accumulator<N>, Element<N>>;
template <class N>
constexpr bool paired = N::elements > 1;
template <class N>
constexpr int64_t k_groups(int64_t elements) {
  return (elements + N::elements - 1) / N::elements;
}

// The left operand, read one group at a time, so that it may be a matrix or its transpose.
template <class A>
struct LeftOperand {
  const A* data;
  int64_t row_stride, depth_stride;
};

// Entries with first <= column - row <= last: the part of a tile that a mask or window leaves.
struct Band {
  int64_t first, last;
};
constexpr int64_t far_away = int64_t{1} << 40;
constexpr Band full_band = {-far_away, far_away};
constexpr Band mirrored(Band band) { return {-band.last, -band.first}; }

// The update of C by a product P: C = scale P, or C + scale P if `add` is set.
template <class A>
struct Update {
  A scale;
  bool add;
};

// C (rows x vectors) = [C +] scale A (rows x depth) B (depth x vectors), the depth in groups
template <class N, int rows, int vectors, class A = Accumulator<N>>
void product_kernel(int64_t depth, LeftOperand<A> a, Matrix<const A> b, Matrix<A> c, Update<A> update) {
  constexpr int w = lanes<A>;
  Vector<A> sums[rows][vectors] = {};
  for (int64_t k = 0; k < depth; ++k, a.data += a.depth_stride, b.data += b.stride) {
    Vector<A> right[vectors];
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { right[v] = load(b.data + v * w); });
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      const Vector<A> left = N::broadcast(a.data + r * a.row_stride);
      unrolled<vectors>([&](auto v)
                            __attribute__((always_inline)) { sums[r][v] = N::add(sums[r][v], right[v], left); });
    });
  }
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
      A* const element = c.data + r * c.stride + v * w;
      store(element, (update.add ? load(element) : Vector<A>{}) + sums[r][v] * update.scale);
    });
  });
}

template <class A>
using ProductKernel = void (*)(int64_t, LeftOperand<A>, Matrix<const A>, Matrix<A>, Update<A>);

// Kernels for all numbers of rows and vectors, including the remainders at the edges of a tile.
template <class A>
struct ProductKernels {
  ProductKernel<A> of[kernel_rows * kernel_vectors];
};
template <class N, int... i>
constexpr ProductKernels<Accumulator<N>> product_kernels(std::integer_sequence<int, i...>) {
  return {{product_kernel<N, i / kernel_vectors + 1, i % kernel_vectors + 1>...}};
}

// C (m x n) = [C +] scale A (m x depth) B (depth x n), n a multiple of the vector.
// Skips terms whose (row, depth) is outside `inner`, because A is zero there, and elements of C
// outside `outer`, which are unused. Returns the number of multiply-adds.
template <class N, class A = Accumulator<N>>
int64_t product(int64_t m, int64_t n, int64_t depth, LeftOperand<A> a, Matrix<const A> b, Matrix<A> c, Update<A> update,
                Band inner = full_band, Band outer = full_band) {
  constexpr ProductKernels<A> kernels =
      product_kernels<N>(std::make_integer_sequence<int, kernel_rows * kernel_vectors>());
  constexpr int64_t w = lanes<A>, width = kernel_vectors * w;
  int64_t work = 0;
  for (int64_t n0 = 0; n0 < n; n0 += width)
    for (int64_t r = 0; r < m; r += kernel_rows) {
      const int64_t rows = minimum(kernel_rows, m - r), last = r + rows - 1;
      const int64_t k0 = minimum(depth, maximum(0, r + inner.first)) / N::elements;
      const int64_t k1 = k_groups<N>(minimum(depth, maximum(0, last + inner.last + 1)));
      const int64_t c0 = maximum(n0, (r + outer.first) & -w);
      const int64_t c1 = minimum(minimum(n, n0 + width), (last + outer.last + w) & -w);
      if (c0 >= c1) continue;
      kernels.of[(rows - 1) * kernel_vectors + (c1 - c0) / w - 1](
          k1 - k0, {a.data + r * a.row_stride + k0 * a.depth_stride, a.row_stride, a.depth_stride},
          {b.data + k0 * b.stride + c0, b.stride}, {c.data + r * c.stride + c0, c.stride}, update);
      work += rows * (c1 - c0) * maximum(0, k1 - k0) * N::elements;
    }
  return work;
}

// Multiplies in f32 or f64 without the terms where A is 0, since B may be NaN or infinite there.
template <class A, class E>
int64_t selective_product(int64_t m, int64_t n, int64_t depth, LeftOperand<A> a, Matrix<const E> b, Matrix<A> c,
                          Update<A> update) {
  int64_t terms = 0;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t n0 = 0; n0 < n; n0 += lanes<A>) {
      Vector<A> sum{};
      for (int64_t k = 0; k < depth; ++k) {
        const A left = a.data[r * a.row_stride + k * a.depth_stride];
        if (left != 0) sum += load_widened(b.row(k) + n0) * left, ++terms;
      }
      store(c.row(r) + n0, (update.add ? load(c.row(r) + n0) : Vector<A>{}) + sum * update.scale);
    }
  return terms * lanes<A>;
}

// Returns true if the first n elements of `rows` rows are neither NaN nor infinite.
template <class E, class A = Arithmetic<E>>
bool finite(Matrix<const E> x, int64_t rows, int64_t n) {
  Mask<A> bad{};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += lanes<A>) {
      const Vector<A> value = load_widened(x.row(r) + c);
      bad |= value - value != A(0);
    }
  return !any<A>(bad);
}

// ---- memory layouts of operands

// Loads `count` groups of a row as a vector, times `scale` if N is not paired.
template <class N, class A = Accumulator<N>>
[[gnu::always_inline]] inline Vector<A> load_groups(const Element<N>* x, int64_t count, A scale) {
  if constexpr (!paired<N>) {
    return N::down(x) * scale;
  } else {
    if (count == lanes<A>) return N::down(x);
    A buffer[lanes<A>] = {};
    for (int64_t i = 0; i < count; ++i) buffer[i] = N::group(x + i * N::elements, 1, N::elements);
    return load(buffer);
  }
}

// y (groups of n, width) = scale * the transpose of x (rows x n); zero in columns beyond `rows`.
// `scale` must be 1 for pairs.
template <class N, class A = Accumulator<N>>
void pack_columns(Matrix<const Element<N>> x, int64_t rows, int64_t n, A scale, int64_t width, A* y) {
  constexpr int w = lanes<A>;
  for (int64_t i = 0; i < width; i += w)
    for (int64_t c = 0; c < k_groups<N>(n); c += w) {
      const int64_t here = minimum(w, k_groups<N>(n) - c);
      Vector<A> block[w] = {};
      unrolled<w>([&](auto r) __attribute__((always_inline)) {
        if (i + r < rows) block[r] = load_groups<N>(x.row(i + r) + c * N::elements, here, scale);
      });
      transpose<A>(block);
      unrolled<w>([&](auto r) __attribute__((always_inline)) {
        if (!paired<N> || r < here) store(y + (c + r) * width + i, block[r]);
      });
    }
}

// Returns x (rows x n) as the left operand of a product of depth n. bf16 that is not paired is
// widened into `memory` (rows x n).
template <class N, class A = Accumulator<N>>
Matrix<const A> left_operand_rows(Matrix<const Element<N>> x, int64_t rows, int64_t n, A* memory) {
  if constexpr (plain<N> || paired<N>) {  // pairs of a row are adjacent in memory
    return {reinterpret_cast<const A*>(x.data), x.stride / N::elements};
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < n; c += lanes<A>) store(memory + r * n + c, load_widened(x.row(r) + c));
    return {memory, n};
  }
}

// Returns x (rows x n) as the right operand of a product of depth `rows`.
template <class N, class A = Accumulator<N>>
Matrix<const A> right_operand_rows(Matrix<const Element<N>> x, int64_t rows, int64_t n, A* memory) {
  if constexpr (paired<N>) {
    for (int64_t r = 0; r < rows; r += N::elements) {
      A* const row = memory + r / N::elements * n;
      for (int64_t c = 0; r + 1 < rows && c < n; c += lanes<A>)
        N::template across<lanes<A>>(x.row(r) + c, x.stride, row + c);
      for (int64_t c = 0; r + 1 == rows && c < n; ++c) row[c] = N::group(x.row(r) + c, x.stride, 1);
    }
    return {memory, n};
  } else {
    return left_operand_rows<N>(x, rows, n, memory);
  }
}

// Returns right_operand_rows of an x that left_operand_rows has already widened into `memory`.
template <class N, class A = Accumulator<N>>
Matrix<const A> right_after_left_rows(Matrix<const Element<N>> x, int64_t rows, int64_t n, A* memory) {
  if constexpr (plain<N> || paired<N>)
    return right_operand_rows<N>(x, rows, n, memory);
  else
    return {memory, n};
}

// Returns computed values x (rows x width) as a left operand: rows of x, its first `count` columns as
// the depth. `memory`, for pairs, is half as large as x.
template <class N, class A = Accumulator<N>>
LeftOperand<A> along_width(const A* x, int64_t rows, int64_t width, int64_t count, A* memory) {
  if constexpr (!paired<N>) {
    return {x, width, 1};
  } else {
    const int64_t n = rows * width;
    for (int64_t i = 0; i < n; i += N::elements * lanes<A>) {
      const bool whole = i + lanes<A> < n;
      store(memory + i / N::elements, N::rounded(load(x + i), whole ? load(x + i + lanes<A>) : Vector<A>{}));
    }
    if (count % N::elements != 0)  // the last pair has one element; the value after it may be NaN
      for (int64_t r = 0; r < rows; ++r) reinterpret_cast<Element<N>*>(memory)[r * width + count] = {};
    return {memory, width / N::elements, 1};
  }
}

// Returns the transpose of x as a left operand: columns of x are its rows, rows of x its depth.
template <class N, class A = Accumulator<N>>
LeftOperand<A> along_rows(const A* x, int64_t rows, int64_t width, A* memory) {
  if constexpr (paired<N>)
    for (int64_t r = 0; r < rows; r += N::elements)
      for (int64_t c = 0; c < width; c += lanes<A>) {
        const A* const row = x + r * width + c;
        store(memory + r / N::elements * width + c,
              N::joined(load(row), r + 1 < rows ? load(row + width) : Vector<A>{}));
      }
  return {paired<N> ? memory : x, 1, width};
}

template <class A>
void fill_rows(Matrix<A> x, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += lanes<A>) store(x.row(r) + c, Vector<A>{});
}

}  // namespace
}  // namespace orrery::detail::attention
