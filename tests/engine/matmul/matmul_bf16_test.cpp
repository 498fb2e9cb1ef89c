// Products of bf16: exact elements, sums in f32, one rounding at the end.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/matmul/matmul.h"
#include "engine/system/parallel.h"
#include "engine/types/dtype.h"
#include "tests/support/product_kernels.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::testing;

namespace {

std::vector<bf16> rounded(const std::vector<double>& x) {
  std::vector<bf16> y;
  for (const double e : x) y.push_back(bf16(static_cast<float>(e)));
  return y;
}
template <class T>
std::vector<float> widened(const std::vector<T>& x) {
  std::vector<float> y;
  for (const T e : x) y.push_back(static_cast<float>(e));
  return y;
}
std::vector<bf16> irregular(int64_t count, int seed) { return rounded(random_tensor({count}, seed).to_vector()); }

struct Operands {
  std::vector<bf16> a, b, c, bias, residual;
  explicit Operands(const Product& p)
      : a(irregular((p.share_a ? 1 : p.batch) * p.m * p.k, 1)),
        b(irregular((p.share_b ? 1 : p.batch) * p.k * p.n, 2)),
        c(irregular(p.batch * p.m * p.n, 3)),
        bias(irregular(p.n, 4)),
        residual(irregular(p.batch * p.m * p.n, 5)) {}
};

std::vector<float> sizes(std::vector<float> x) {
  for (float& e : x) e = std::fabs(e);
  return x;
}

// A bf16 product equals the f32 product of its values, which has its own tests. avx512_bf16 sums in
// pairs: each of k + 3 additions may lose 2^-24 of the sum of magnitudes.
void check_product(Product p) {
  const bool in_pairs = std::string(product_kernels()) == "avx512_bf16";
  CAPTURE(p.m);
  CAPTURE(p.n);
  CAPTURE(p.k);
  CAPTURE(p.transpose_a);
  CAPTURE(p.transpose_b);
  CAPTURE(p.accumulate);
  const Operands x(p);
  const std::vector<float> a = widened(x.a), b = widened(x.b), bias = widened(x.bias), residual = widened(x.residual);
  std::vector<float> expected = widened(x.c), wide = expected;
  std::vector<bf16> c = x.c;
  multiply<float>(Device::cpu, p, a.data(), b.data(), {expected.data()},
                  {.bias = bias.data(), .residual = residual.data()});
  multiply<bf16>(Device::cpu, p, x.a.data(), x.b.data(), {wide.data()},
                 {.bias = bias.data(), .residual = residual.data()});
  if (in_pairs) {
    std::vector<float> all = sizes(widened(x.c));
    const std::vector<float> bias_sizes = sizes(bias), residual_sizes = sizes(residual);
    multiply<float>(Device::cpu, p, sizes(a).data(), sizes(b).data(), {all.data()},
                    {.bias = bias_sizes.data(), .residual = residual_sizes.data()});
    float worst = 0;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] > 0) worst = std::max(worst, std::fabs(wide[i] - expected[i]) / all[i]);
    CHECK(worst <= 2 * static_cast<float>(p.k + 3) * 0x1p-24f);
  } else {
    CHECK(wide == expected);
  }

  // A bf16 C is added once, to the complete sum: blocks of k are not added to it one by one.
  const bool accumulate = std::exchange(p.accumulate, false);
  std::vector<float> sums(c.size());
  multiply<bf16>(Device::cpu, p, x.a.data(), x.b.data(), {sums.data()});
  for (size_t i = 0; i < sums.size(); ++i) {
    if (accumulate) sums[i] += static_cast<float>(c[i]);
    sums[i] += bias[i % bias.size()];
    sums[i] += residual[i];
  }
  p.accumulate = accumulate;
  multiply<bf16>(Device::cpu, p, x.a.data(), x.b.data(), {c.data()},
                 {.bias = x.bias.data(), .residual = x.residual.data()});
  CHECK(widened(c) == widened(rounded({sums.begin(), sums.end()})));
}
template <class F>
void with_bf16_kernels(const F& f) {
  with_all_kernels(f, true);
}
void check_forms(Product p) {
  for (int form = 0; form < 8; ++form) {
    p.transpose_a = form & 1, p.transpose_b = form & 2, p.accumulate = form & 4;
    check_product(p);
  }
}

struct RecordedValues final : EpilogueFunction<bf16> {
  explicit RecordedValues(const std::vector<bf16>& c) : first(c.data()), values(c.size()) {}
  const bf16* first;
  mutable std::vector<bf16> values;
  void row(int, int64_t row, int64_t column, int64_t columns, bf16* c) const override {
    const int64_t at = c - first;
    CHECK(at == row * 70 + column);
    for (int64_t i = 0; i < columns; ++i) values[static_cast<size_t>(at + i)] = c[i];
  }
};

}  // namespace

TEST_CASE("matmul of bf16: sizes near those of a panel, in all forms") {
  with_bf16_kernels([] {
    for (const int64_t m : {1, 8, 17})
      for (const int64_t n : {1, 15, 48, 97})
        for (const int64_t k : {0, 1, 17, 33}) check_forms({.m = m, .n = n, .k = k});
  });
}

TEST_CASE("matmul of bf16: sizes near those of a block and of a tile, batches and shared sides") {
  with_bf16_kernels([] {
    check_forms({.m = 70, .n = 193, .k = 513});
    check_forms({.m = 259, .n = 300, .k = 150});
    check_product({.m = 1031, .n = 17, .k = 530, .transpose_a = true});
    check_product({.m = 70, .n = 2100, .k = 260, .transpose_b = true});
    for (const bool shared : {false, true})
      check_forms({.m = 11, .n = 53, .k = 19, .batch = 3, .share_a = shared, .share_b = !shared});
  });
}

TEST_CASE("matmul of bf16: partial sums are not rounded to bf16") {
  with_bf16_kernels([] {  // 256 + 0.75 rounds to 256 in bf16
    const bf16 one(1.f), start(0.75f);
    bf16 c(256.f);
    multiply<bf16>(Device::cpu, {.m = 1, .n = 1, .k = 1, .accumulate = true}, &one, &start, {&c},
                   {.bias = &start, .residual = &start});
    CHECK(static_cast<float>(c) == 258.f);
  });
}

TEST_CASE("matmul of bf16: several outputs, and an epilogue that reads the stored values") {
  with_bf16_kernels([] {
    const Product p{.m = 40, .n = 170, .k = 30, .transpose_b = true, .output_columns = {70, 0, 100}};
    const Operands x(p);
    Product whole = p;
    whole.output_columns = {};
    std::vector<bf16> left(40 * 70), none, right(40 * 100), all(40 * 170);
    multiply<bf16>(Device::cpu, whole, x.a.data(), x.b.data(), {all.data()}, {.bias = x.bias.data()});
    multiply<bf16>(Device::cpu, p, x.a.data(), x.b.data(), {left.data(), none.data(), right.data()},
                   {.bias = x.bias.data()});
    bool equal = true;
    for (int64_t r = 0; r < 40; ++r)
      for (int64_t i = 0; i < 170; ++i)
        equal = equal && (i < 70 ? left[r * 70 + i] : right[r * 100 + i - 70]).bits == all[r * 170 + i].bits;
    CHECK(equal);

    std::vector<bf16> c(40 * 70);
    const RecordedValues recorded(c);
    multiply<bf16>(Device::cpu, {.m = 40, .n = 70, .k = 30}, x.a.data(), x.b.data(), {c.data()},
                   {.function = &recorded});
    CHECK(widened(recorded.values) == widened(c));
  });
}

TEST_CASE("matmul of bf16: results are bit-identical for any number of threads") {
  const int before = thread_count();
  with_bf16_kernels([&] {
    const Product p{.m = 600, .n = 500, .k = 300};
    const Operands x(p);
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      set_thread_count(threads);
      std::vector<bf16> c(x.c.size());
      multiply<bf16>(Device::cpu, p, x.a.data(), x.b.data(), {c.data()});
      if (first.empty()) first = widened(c);
      CHECK(widened(c) == first);
    }
  });
  set_thread_count(before);
}

TEST_CASE("matmul of bf16: an element's bits depend on its row, its column and the inner size alone") {
  with_bf16_kernels([] {
    if (std::string(product_kernels()) == "openblas") return;
    const Product p{.m = 20, .n = 100, .k = 2075, .transpose_b = true};
    const Operands x(p);
    std::vector<float> all(20 * 100);
    multiply<bf16>(Device::cpu, p, x.a.data(), x.b.data(), {all.data()});
    for (int64_t rows = 1; rows <= 5; ++rows) {  // up to four rows of a layer have their own kernels
      Product few = p;
      few.m = rows;
      std::vector<float> found(static_cast<size_t>(rows * p.n));
      multiply<bf16>(Device::cpu, few, x.a.data(), x.b.data(), {found.data()});
      CHECK(found == std::vector<float>(all.begin(), all.begin() + rows * p.n));
    }
    const int64_t row = 13, column = 88, m = 7, n = 9;
    std::vector<float> corner(static_cast<size_t>(m * n));
    multiply<bf16>(Device::cpu, {.m = m, .n = n, .k = p.k, .transpose_b = true}, x.a.data() + row * p.k,
                   x.b.data() + column * p.k, {corner.data()});
    bool equal = true;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) equal = equal && corner[i * n + j] == all[(row + i) * p.n + column + j];
    CHECK(equal);
  });
}

TEST_CASE("matmul of bf16: NaN and infinity reach the result, also next to padding") {
  with_bf16_kernels([] {
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
      for (const int64_t k : {1, 2, 33}) {
        std::vector<bf16> a(static_cast<size_t>(9 * k), bf16(1.f)), b(static_cast<size_t>(k * 50), bf16(1.f));
        a[static_cast<size_t>(3 * k + k - 1)] = bf16(value);
        std::vector<float> c(9 * 50);
        multiply<bf16>(Device::cpu, {.m = 9, .n = 50, .k = k}, a.data(), b.data(), {c.data()});
        for (size_t i = 0; i < c.size(); ++i)
          CHECK((i / 50 == 3 ? !std::isfinite(c[i]) : c[i] == static_cast<float>(k)));
      }
  });
}
