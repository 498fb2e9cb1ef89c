#include "engine/matmul/matmul.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/matmul/tile.h"
#include "engine/system/parallel.h"
#include "engine/system/version.h"
#include "engine/types/check.h"
#include "tests/support/message.h"
#include "tests/support/product_kernels.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::testing;

namespace {

template <class T>
using Numbers = std::vector<T>;

template <class T>
Numbers<T> numbers_of(const Tensor& x) {
  const std::vector<double> values = x.to_vector();
  return Numbers<T>(values.begin(), values.end());
}
template <class T>
Numbers<T> whole(int64_t count, int seed) {
  return numbers_of<T>(whole_numbers({count}, seed));
}
template <class T>
Numbers<T> irregular(int64_t count, int seed) {
  return numbers_of<T>(random_tensor({count}, seed));
}

// Computes the product by its definition.
template <class T>
Numbers<T> by_hand(const Product& p, const Numbers<T>& a, const Numbers<T>& b, Numbers<T> c) {
  for (int64_t s = 0; s < p.batch; ++s) {
    const T* const x = a.data() + (p.share_a ? 0 : s * p.m * p.k);
    const T* const y = b.data() + (p.share_b ? 0 : s * p.k * p.n);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        T sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += x[p.transpose_a ? k * p.m + i : i * p.k + k] * y[p.transpose_b ? j * p.k + k : k * p.n + j];
        T& element = c[(s * p.m + i) * p.n + j];
        element = p.accumulate ? element + sum : sum;
      }
  }
  return c;
}

template <class T>
Numbers<T> multiplied(const Product& p, const Numbers<T>& a, const Numbers<T>& b, Numbers<T> c) {
  multiply<T>(Device::cpu, p, a.data(), b.data(), {c.data()});
  return c;
}

// Integers: sums are equal in any order.
template <class T>
void check_product(const Product& p) {
  CAPTURE(p.m);
  CAPTURE(p.n);
  CAPTURE(p.k);
  CAPTURE(p.transpose_a);
  CAPTURE(p.transpose_b);
  CAPTURE(p.accumulate);
  const Numbers<T> a = whole<T>((p.share_a ? 1 : p.batch) * p.m * p.k, 1);
  const Numbers<T> b = whole<T>((p.share_b ? 1 : p.batch) * p.k * p.n, 2), c = whole<T>(p.batch * p.m * p.n, 3);
  CHECK(multiplied(p, a, b, c) == by_hand(p, a, b, c));
}

void check_forms(Product p) {
  for (int form = 0; form < 8; ++form) {
    p.transpose_a = form & 1, p.transpose_b = form & 2, p.accumulate = form & 4;
    check_product<float>(p);
    check_product<double>(p);
  }
}

// Records the calls of an epilogue and the values that they receive.
struct RecordedOutputs final : EpilogueFunction<float> {
  mutable std::vector<std::vector<int>> times;     // calls per output and element
  mutable std::vector<std::vector<float>> values;  // value at the last call
  std::vector<int64_t> columns;                    // width of each output
  std::vector<float*> c;
  mutable bool in_place = true;
  void add_output(int64_t size, int64_t width, float* output) {
    times.emplace_back(size), values.emplace_back(size), columns.push_back(width), c.push_back(output);
  }
  void row(int output, int64_t row, int64_t column, int64_t count, float* from) const override {
    const auto i = static_cast<size_t>(output);
    const int64_t at = row * columns[i] + column;
    if (from != c[i] + at) in_place = false;
    for (int64_t e = 0; e < count; ++e) times[i][at + e] += 1, values[i][at + e] = from[e];
  }
};

}  // namespace

TEST_CASE("matmul: sizes near those of a panel, in all forms") {
  with_all_kernels([] {
    for (const int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 17})
      for (const int64_t n : {1, 8, 15, 17, 24, 32, 47, 48, 49, 64, 97, 112})
        for (const int64_t k : {0, 1, 8, 17, 33}) check_forms({.m = m, .n = n, .k = k});
  });
}

TEST_CASE("matmul: sizes near those of a block and of a tile, in all forms") {
  with_all_kernels([] {
    check_forms({.m = 513, .n = 50, .k = 20});
    check_forms({.m = 20, .n = 193, .k = 513});
    check_forms({.m = 33, .n = 385, .k = 257});
    check_forms({.m = 9, .n = 49, .k = 1025});
    check_forms({.m = 259, .n = 300, .k = 150});
    check_forms({.m = 129, .n = 64, .k = 200});
    check_product<float>({.m = 1031, .n = 17, .k = 530, .transpose_a = true});
    check_product<float>({.m = 70, .n = 2100, .k = 260, .transpose_b = true});
    for (const int64_t m : {1, 3}) check_forms({.m = m, .n = 1049, .k = 1100});  // few rows; several tiles and depths
  });
}

TEST_CASE("matmul: the workspace size does not fall as the tile grows") {
  const auto check_kernels = [](const detail::matmul::Kernels& kernels) {
    for (const auto workspace : {kernels.f32.workspace, kernels.f64.workspace, kernels.bf16.workspace})
      for (int64_t m = 2; m < 1600; ++m) REQUIRE(workspace(m, 48, 70) >= workspace(m - 1, 48, 70));
  };
  check_kernels(detail::matmul::avx2);
  if (processor_has_avx512()) check_kernels(detail::matmul::avx512);
}

TEST_CASE("matmul: batches, with one side shared") {
  with_all_kernels([] {
    for (const bool share_a : {false, true})
      for (const bool share_b : {false, true})
        check_forms({.m = 11, .n = 53, .k = 19, .batch = 3, .share_a = share_a, .share_b = share_b});
  });
}

TEST_CASE("matmul: the epilogue receives every element of every output once, complete, with its index") {
  with_all_kernels([] {
    for (const bool accumulate : {false, true}) {
      const Product p{.m = 531,
                      .n = 700,
                      .k = 600,
                      .transpose_b = true,
                      .accumulate = accumulate,
                      .output_columns = {401, 0, 98, 201}};
      const Numbers<float> a = whole<float>(p.m * p.k, 1), b = whole<float>(p.k * p.n, 2);
      Product one = p;
      one.output_columns = {};
      const Numbers<float> expected = by_hand(one, a, b, Numbers<float>(p.m * p.n, accumulate ? 2.f : 0.f));
      std::vector<Numbers<float>> c;
      RecordedOutputs recorded;
      for (const int64_t columns : p.output_columns) c.emplace_back(p.m * columns, 2.f);
      for (size_t i = 0; i < 4; ++i) recorded.add_output(p.m * p.output_columns[i], p.output_columns[i], c[i].data());
      multiply<float>(Device::cpu, p, a.data(), b.data(), {recorded.c[0], recorded.c[1], recorded.c[2], recorded.c[3]},
                      {.function = &recorded});
      CHECK(recorded.in_place);
      int64_t first = 0;
      for (size_t i = 0; i < 4; ++i) {
        CHECK(recorded.times[i] == std::vector<int>(c[i].size(), 1));
        CHECK(recorded.values[i] == c[i]);
        bool right = true;
        for (int64_t r = 0; r < p.m; ++r)
          for (int64_t e = 0; e < recorded.columns[i]; ++e)
            right = right && c[i][r * recorded.columns[i] + e] == expected[r * p.n + first + e];
        CHECK(right);
        first += recorded.columns[i];
      }
    }
  });
}

TEST_CASE("matmul: bias and residual are added to every element before the epilogue function reads it") {
  with_all_kernels([] {
    const Product p{.m = 37, .n = 100, .k = 20, .batch = 2, .accumulate = true};
    const Numbers<float> a = whole<float>(p.batch * p.m * p.k, 1), b = whole<float>(p.batch * p.k * p.n, 2);
    const Numbers<float> bias = whole<float>(p.n, 3), residual = whole<float>(p.batch * p.m * p.n, 4);
    Numbers<float> c(residual.size(), 2.f), expected = by_hand(p, a, b, c);
    for (size_t i = 0; i < c.size(); ++i) expected[i] += bias[i % static_cast<size_t>(p.n)] + residual[i];
    RecordedOutputs recorded;
    recorded.add_output(p.batch * p.m * p.n, p.n, c.data());
    multiply<float>(Device::cpu, p, a.data(), b.data(), {c.data()},
                    {.function = &recorded, .bias = bias.data(), .residual = residual.data()});
    CHECK(c == expected);
    CHECK(recorded.values[0] == expected);
  });
}

TEST_CASE("matmul: the bias of several outputs is counted over the product's columns") {
  with_all_kernels([] {
    const Product p{.m = 3, .n = 60, .k = 0, .output_columns = {50, 10}};
    const Numbers<float> bias = whole<float>(p.n, 3);
    Numbers<float> left(150), right(30);
    multiply<float>(Device::cpu, p, nullptr, nullptr, {left.data(), right.data()}, {.bias = bias.data()});
    for (int64_t i = 0; i < 150; ++i) CHECK(left[i] == bias[i % 50]);
    for (int64_t i = 0; i < 30; ++i) CHECK(right[i] == bias[50 + i % 10]);
  });
}

TEST_CASE("matmul: errors name outputs that do not fit") {
  float c = 0;
  const auto few_columns = [&] {
    multiply<float>(Device::cpu, {.m = 1, .n = 5, .k = 1, .output_columns = {2, 2}}, &c, &c, {&c, &c});
  };
  expect_error(few_columns).names("matmul").names("columns").value(4).value(5);
  const auto no_output = [&] { multiply<float>(Device::cpu, {.m = 1, .n = 1, .k = 1}, &c, &c, {}); };
  expect_error(no_output).names("matmul").value("0 outputs").offers("1 to 4");
  const auto two_with_residual = [&] {
    multiply<float>(Device::cpu, {.m = 1, .n = 2, .k = 1, .output_columns = {1, 1}}, &c, &c, {&c, &c},
                    {.residual = &c});
  };
  expect_error(two_with_residual).names("matmul").names("residual").offers("one output").value(2);
  const auto row_sums = [&] { multiply<float>(Device::cpu, {.m = 1, .n = 1, .k = 1}, &c, &c, {&c}, {.row_sums = &c}); };
  expect_error(row_sums).names("matmul").names("A's rows").offers("A^T B").offers("bf16").offers("GPU");
}

#if !defined(ORRERY_CUDA) && !defined(EMULATE_CUDA)
TEST_CASE("matmul: a product on a GPU needs a build with CUDA") {
  float c = 0;
  const auto on_gpu = [&] { multiply<float>(Device::cuda, {.m = 1, .n = 1, .k = 1}, &c, &c, {&c}); };
  expect_error(on_gpu).names("matmul").value("CUDA").offers("-DORRERY_CUDA=ON");
}
#endif

TEST_CASE("matmul: rows of the epilogue are counted over the batch, also for an inner size of 0") {
  with_all_kernels([] {
    const Product p{.m = 3, .n = 5, .k = 0, .batch = 4};
    Numbers<float> c(60, 7.f);
    RecordedOutputs recorded;
    recorded.add_output(60, 5, c.data());
    multiply<float>(Device::cpu, p, nullptr, nullptr, {c.data()}, {.function = &recorded});
    CHECK(c == Numbers<float>(60, 0.f));
    CHECK(recorded.in_place);
    CHECK(recorded.times[0] == std::vector<int>(60, 1));
  });
}

TEST_CASE("matmul: NaN and infinity affect their row or column only") {
  with_all_kernels([] {
    for (const int64_t last : {0, 2, 20})  // the last row of one, few and many
      for (const bool transposed : {false, true}) {
        const Product p{.m = last + 1, .n = 75, .k = 40, .transpose_a = transposed, .transpose_b = transposed};
        Numbers<float> a(p.m * p.k, 1.f), b(p.k * p.n, 2.f);
        if (last > 0) a[transposed ? 3 * p.m + last : last * p.k + 3] = std::numeric_limits<float>::quiet_NaN();
        b[transposed ? 74 * p.k + 5 : 5 * p.n + 74] = std::numeric_limits<float>::infinity();
        const Numbers<float> nan(p.m * p.n, std::numeric_limits<float>::quiet_NaN()), c = multiplied(p, a, b, nan);
        int wrong = 0;
        for (int64_t i = 0; i < p.m; ++i)
          for (int64_t j = 0; j < p.n; ++j) {
            const float value = c[i * p.n + j];
            const bool right = last > 0 && i == last ? std::isnan(value) : j == 74 ? std::isinf(value) : value == 80;
            wrong += !right;
          }
        CHECK(wrong == 0);
      }
  });
}

TEST_CASE("matmul: old contents are read only if the product accumulates") {
  with_all_kernels([] {
    const Product p{.m = 10, .n = 50, .k = 3};
    const Numbers<float> nan(p.m * p.n, std::numeric_limits<float>::quiet_NaN());
    CHECK(multiplied(p, Numbers<float>(30, 1.f), Numbers<float>(150, 1.f), nan) == Numbers<float>(500, 3.f));
  });
}

TEST_CASE("matmul: results are bit-identical for any number of threads") {
  const int before = thread_count();
  // Tiles depend on the number of threads, and so does which operands are packed.
  with_all_kernels([&] {
    for (Product p : {Product{.m = 600, .n = 500, .k = 700}, Product{.m = 200, .n = 403, .k = 520},
                      Product{.m = 300, .n = 64, .k = 100}, Product{.m = 3, .n = 1049, .k = 1100}})
      for (int form = 0; form < 4; ++form) {
        p.transpose_a = form & 1, p.transpose_b = form & 2;
        const Numbers<float> a = irregular<float>(p.m * p.k, 1), b = irregular<float>(p.k * p.n, 2), c(p.m * p.n);
        set_thread_count(1);
        const Numbers<float> alone = multiplied(p, a, b, c);
        for (const int threads : {2, 3, 5, 16}) {
          CAPTURE(threads);
          set_thread_count(threads);
          CHECK(multiplied(p, a, b, c) == alone);
        }
      }
  });
  set_thread_count(before);
}

TEST_CASE("matmul: an element's bits depend on its row, its column and the inner size alone") {
  const Product p{.m = 530, .n = 260, .k = 900}, corner{.m = 5, .n = 3, .k = 900};
  const Numbers<float> a = irregular<float>(p.m * p.k, 1), b = irregular<float>(p.k * p.n, 2);
  const int64_t row = 521, column = 250;
  const Numbers<float> rows(a.begin() + row * p.k, a.begin() + (row + corner.m) * p.k);
  Numbers<float> columns;
  for (int64_t k = 0; k < p.k; ++k)
    for (int64_t j = 0; j < corner.n; ++j) columns.push_back(b[k * p.n + column + j]);
  Numbers<float> first;  // result of the first kernel set; results do not depend on the vector width
  with_own_kernels([&] {
    const Numbers<float> all = multiplied(p, a, b, Numbers<float>(p.m * p.n));
    const Numbers<float> few = multiplied(corner, rows, columns, Numbers<float>(corner.m * corner.n));
    for (int64_t i = 0; i < corner.m; ++i)
      for (int64_t j = 0; j < corner.n; ++j) CHECK(few[i * corner.n + j] == all[(row + i) * p.n + column + j]);
    if (first.empty()) first = all;
    CHECK(all == first);
  });
}

TEST_CASE("matmul: a few rows of a layer are bit-identical to those of many rows") {
  const Product p{.m = 20, .n = 100, .k = 900, .transpose_b = true};
  const Numbers<float> a = irregular<float>(p.m * p.k, 1), b = irregular<float>(p.k * p.n, 2);
  with_own_kernels([&] {
    const Numbers<float> all = multiplied(p, a, b, Numbers<float>(p.m * p.n));
    for (int64_t rows = 1; rows <= 5; ++rows) {
      Product few = p;
      few.m = rows;
      CHECK(multiplied(few, a, b, Numbers<float>(rows * p.n)) == Numbers<float>(all.begin(), all.begin() + rows * p.n));
    }
  });
}

TEST_CASE("matmul: the error for unknown kernels names them") {
  expect_error([] { use_product_kernels("mmx"); }).names("matmul").value("mmx").offers("openblas");
  const std::string before = product_kernels();
  use_product_kernels("openblas");
  CHECK(product_kernels() == std::string("openblas"));
  use_product_kernels("auto");
  CHECK(product_kernels() == before);
}

TEST_CASE("matmul: a size beyond OpenBLAS's integers is an error, and is not truncated") {
  const float one = 1;
  float c = 0;
  constexpr int64_t k = (int64_t{1} << 32) + 1;  // 1 if truncated to 32 bits
  for (const int64_t m : {1, 2})
    expect_error([&] {
      detail::matmul::openblas.f32.multiply({.m = m,
                                             .n = 1,
                                             .k = k,
                                             .a = {&one, k, false},
                                             .b = {&one, 1, false},
                                             .c = &c,
                                             .stride = 1,
                                             .accumulate = true},
                                            {}, nullptr);
    })
        .names("matmul")
        .value(k)
        .offers(std::numeric_limits<int>::max());
  CHECK(c == 0);
}
