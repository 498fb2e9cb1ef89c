#include "models/evaluation/ridge.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "engine/types/check.h"

namespace orrery::models {
namespace {

constexpr int64_t rows_per_chunk = 64, columns_per_chunk = 16;

// Replaces the lower triangle of a (n, n) by L, column by column: each is subtracted from the rest.
void factorize(double* a, int64_t n) {
  std::vector<double> column(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    const double pivot = a[k * n + k];
    check(pivot > 0 && std::isfinite(pivot), "ridge: pivot ", k, " of the matrix is ", pivot,
          "; it must be above 0 and finite; use a higher strength, or features without NaN and infinity");
    const double root = std::sqrt(pivot);
    a[k * n + k] = root;
    for (int64_t i = k + 1; i < n; ++i) column[static_cast<size_t>(i)] = a[i * n + k] /= root;
    parallel_for(n - k - 1, rows_per_chunk, [&](int64_t begin, int64_t end) {
      for (int64_t i = k + 1 + begin; i < k + 1 + end; ++i) {
        double* const row = a + i * n;
        const double factor = column[static_cast<size_t>(i)];
        for (int64_t j = k + 1; j <= i; ++j) row[j] -= factor * column[static_cast<size_t>(j)];
      }
    });
  }
}

// Replaces columns [begin, end) of b (n, k) by those of (L L^T)^-1 b.
void substitute(const double* l, int64_t n, double* b, int64_t k, int64_t begin, int64_t end) {
  const auto subtract = [&](int64_t from, int64_t row, double factor) {
    for (int64_t j = begin; j < end; ++j) b[row * k + j] -= factor * b[from * k + j];
  };
  const auto divide = [&](int64_t row) {
    for (int64_t j = begin; j < end; ++j) b[row * k + j] /= l[row * n + row];
  };
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t m = 0; m < i; ++m) subtract(m, i, l[i * n + m]);
    divide(i);
  }
  for (int64_t i = n; i-- > 0;) {
    divide(i);
    for (int64_t m = 0; m < i; ++m) subtract(i, m, l[i * n + m]);
  }
}

}  // namespace

Tensor solve_positive_definite(const Tensor& a, const Tensor& b) {
  const int64_t n = a.size(0), k = b.size(1);
  const Tensor l = a.clone(), z = b.clone();
  factorize(l.mutable_data<double>(), n);
  const auto* const triangle = l.data<double>();
  auto* const to = z.mutable_data<double>();
  parallel_for(k, columns_per_chunk,
               [&](int64_t begin, int64_t end) { substitute(triangle, n, to, k, begin, end); });
  return z;
}

Ridge::Ridge(const Tensor& x, const Tensor& y) : dual_(x.size(0) < x.size(1)), x_(x) {
  gram_ = dual_ ? matmul(x, x, {.b = true}) : matmul(x, x, {.a = true});
  right_ = dual_ ? y : matmul(x, y, {.a = true});
}

Tensor Ridge::weights(double strength) const {
  const Tensor a = gram_.clone();
  const int64_t n = a.size(0);
  auto* const numbers = a.mutable_data<double>();
  for (int64_t i = 0; i < n; ++i) numbers[i * n + i] += strength;
  const Tensor z = solve_positive_definite(a, right_);
  return dual_ ? matmul(x_, z, {.a = true}) : z;
}

}  // namespace orrery::models
