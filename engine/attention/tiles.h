// Products of tiles, and the transposed copies they need.
#pragma once

#include "engine/attention/vectors.h"

namespace orrery::detail::attention {
namespace {

// Row r of a matrix begins at data + r * stride.
template <class A>
struct Matrix {
  A* data;
  int64_t stride;
  A* row(int64_t r) const { return data + r * stride; }
};

// The left factor is read one element at a time, so that a matrix and its transpose serve alike.
template <class A>
struct Factor {
  const A* data;
  int64_t row_stride, depth_stride;
};

// Entries (row, column) with first <= column - row <= last: what a causal mask or a window leaves of a tile.
struct Band {
  int64_t first, last;
};
constexpr int64_t far_away = int64_t{1} << 40;
constexpr Band everything = {-far_away, far_away};
constexpr Band mirrored(Band band) { return {-band.last, -band.first}; }

// What is done with a product P: C = factor P or C + factor P.
template <class A>
struct Update {
  A factor;
  bool add;
};

// C (rows x vectors) = [C +] factor A (rows x depth) B (depth x vectors)
template <class A, int rows, int vectors>
void product_kernel(int64_t depth, Factor<A> a, Matrix<const A> b, Matrix<A> c, Update<A> update) {
  constexpr int w = lanes<A>;
  Vector<A> sums[rows][vectors] = {};
  for (int64_t k = 0; k < depth; ++k, a.data += a.depth_stride, b.data += b.stride) {
    Vector<A> right[vectors];
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { right[v] = load(b.data + v * w); });
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      const Vector<A> left = splat(a.data[r * a.row_stride]);
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sums[r][v] += right[v] * left; });
    });
  }
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
      A* const element = c.data + r * c.stride + v * w;
      store(element, (update.add ? load(element) : Vector<A>{}) + sums[r][v] * update.factor);
    });
  });
}

template <class A>
using ProductKernel = void (*)(int64_t, Factor<A>, Matrix<const A>, Matrix<A>, Update<A>);

// Kernels for every number of rows and vectors that a tile may end with.
template <class A>
struct ProductKernels {
  ProductKernel<A> of[kernel_rows * kernel_vectors];
};
template <class A, int... i>
constexpr ProductKernels<A> product_kernels(std::integer_sequence<int, i...>) {
  return {{product_kernel<A, i / kernel_vectors + 1, i % kernel_vectors + 1>...}};
}

// C (m x n) = [C +] factor A (m x depth) B (depth x n), n a multiple of the vector.  Left out are terms whose
// (row, depth) lies outside `inner`, because A is zero there, and elements of C outside `outer`, which are
// unused.  Returns the number of multiplications with additions.
template <class A>
int64_t product(int64_t m, int64_t n, int64_t depth, Factor<A> a, Matrix<const A> b, Matrix<A> c, Update<A> update,
                Band inner = everything, Band outer = everything) {
  constexpr ProductKernels<A> kernels =
      product_kernels<A>(std::make_integer_sequence<int, kernel_rows * kernel_vectors>());
  constexpr int64_t w = lanes<A>, width = kernel_vectors * w;
  int64_t work = 0;
  for (int64_t n0 = 0; n0 < n; n0 += width)
    for (int64_t r = 0; r < m; r += kernel_rows) {
      const int64_t rows = minimum(kernel_rows, m - r), last = r + rows - 1;
      const int64_t k0 = minimum(depth, maximum(0, r + inner.first)), k1 = minimum(depth, last + inner.last + 1);
      const int64_t c0 = maximum(n0, (r + outer.first) & -w);
      const int64_t c1 = minimum(minimum(n, n0 + width), (last + outer.last + w) & -w);
      if (c0 >= c1) continue;
      kernels.of[(rows - 1) * kernel_vectors + (c1 - c0) / w - 1](
          k1 - k0, {a.data + r * a.row_stride + k0 * a.depth_stride, a.row_stride, a.depth_stride},
          {b.data + k0 * b.stride + c0, b.stride}, {c.data + r * c.stride + c0, c.stride}, update);
      work += rows * (c1 - c0) * maximum(0, k1 - k0);
    }
  return work;
}

// The same for a B that holds NaN or infinity in rows that A, being zero there, must not let through.
template <class A>
int64_t selective_product(int64_t m, int64_t n, int64_t depth, Factor<A> a, Matrix<const A> b, Matrix<A> c,
                          Update<A> update) {
  int64_t terms = 0;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t n0 = 0; n0 < n; n0 += lanes<A>) {
      Vector<A> sum{};
      for (int64_t k = 0; k < depth; ++k) {
        const A left = a.data[r * a.row_stride + k * a.depth_stride];
        if (left != 0) sum += load(b.row(k) + n0) * left, ++terms;
      }
      store(c.row(r) + n0, (update.add ? load(c.row(r) + n0) : Vector<A>{}) + sum * update.factor);
    }
  return terms * lanes<A>;
}

// Whether the first n elements of `rows` rows are neither NaN nor infinite.
template <class A>
bool finite(Matrix<const A> x, int64_t rows, int64_t n) {
  Mask<A> bad{};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += lanes<A>) {
      const Vector<A> value = load(x.row(r) + c);
      bad |= value - value != A(0);
    }
  return !any<A>(bad);
}

// y (n x width) = factor * the transpose of x (rows x n); zero in columns beyond `rows`.
template <class A>
void pack_columns(Matrix<const A> x, int64_t rows, int64_t n, A factor, int64_t width, A* y) {
  constexpr int w = lanes<A>;
  for (int64_t i = 0; i < width; i += w)
    for (int64_t c = 0; c < n; c += w) {
      Vector<A> block[w];
      unrolled<w>([&](auto r) __attribute__((always_inline)) {
        block[r] = i + r < rows ? load(x.row(i + r) + c) * factor : Vector<A>{};
      });
      transpose<A>(block);
      unrolled<w>([&](auto r) __attribute__((always_inline)) { store(y + (c + r) * width + i, block[r]); });
    }
}

template <class A>
void fill_rows(Matrix<A> x, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; c += lanes<A>) store(x.row(r) + c, Vector<A>{});
}

}  // namespace
}  // namespace orrery::detail::attention
