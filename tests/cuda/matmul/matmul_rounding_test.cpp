// The product kernels with numbers that are rounded, NaN and infinity, and the barriers that they need.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cuda/matmul/products.h"

namespace orrery {
namespace {

// Returns irregular numbers: the rounding of their long sums reveals any other order.
template <class T>
std::vector<T> irregular(int64_t count) {
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(static_cast<Arithmetic<T>>(std::sin(static_cast<double>(i * i % 9973))));
  return x;
}
template <class T, class Result = T>
void check_rounding(const Form& f, double tolerance) {
  Data<T, Result> data(f);
  data.a = irregular<T>(f.m * f.k), data.b = irregular<T>(f.k * f.n);
  const std::vector<Numbers> expected = by_hand(f, data);
  std::vector<std::vector<Numbers>> results;
  in_every_order([&] { results.push_back(on_gpu(f, data)); });
  for (size_t n = 0; n < expected.size(); ++n) {
    double largest = 0;
    for (const double x : expected[n]) largest = std::max(largest, std::fabs(x));
    for (size_t i = 0; i < expected[n].size(); ++i)
      CHECK(std::fabs(results[0][n][i] - expected[n][i]) <= tolerance * largest);
  }
  for (const std::vector<Numbers>& result : results) CHECK(result == results[0]);
}
TEST_CASE("products on a GPU: products are near the exact ones, and bit-identical in every order of threads") {
  if (no_gpu()) return;
  check_rounding<float>({.m = 70, .n = 66, .k = 200, .transpose_b = true}, 1e-6);
  check_rounding<float>({.m = 30, .n = 33, .k = 2000, .transpose_a = true}, 1e-6);
  check_rounding<double>({.m = 70, .n = 66, .k = 200}, 1e-14);
  check_rounding<double>({.m = 30, .n = 33, .k = 2000, .transpose_a = true, .transpose_b = true}, 1e-14);
  const double lost[] = {1e-6, 1e-2, 1e-5, 1e-6};  // by the number of bf16 terms
  for (int terms = 1; terms <= 3; ++terms) {
    check_rounding<float>({.m = 130, .n = 66, .k = 200, .transpose_b = true, .bf16_terms = terms}, lost[terms]);
    check_rounding<float>({.m = 30, .n = 33, .k = 2000, .transpose_a = true, .bf16_terms = terms}, lost[terms]);
  }
  check_rounding<bf16>({.m = 70, .n = 66, .k = 200, .transpose_b = true}, 1. / 256);
  check_rounding<bf16>({.m = 32, .n = 40, .k = 2000, .transpose_a = true}, 1. / 256);
  check_rounding<bf16, float>({.m = 32, .n = 40, .k = 2000, .transpose_a = true, .row_sums = true}, 1e-4);
}

// One matrix has tiles of 128 columns. Many equal matrices have wide tiles or tiles of 256 x 192,
// depending on the GPU.
TEST_CASE("products on a GPU: results of tensor cores do not depend on the tile") {
  if (no_gpu() || thread_sanitizer) return;
  for (const int64_t n : {190, 200}) {
    const auto irregular_product = [&](int64_t batch) {
      const Form f{.m = 250, .n = n, .k = 104, .batch = batch, .transpose_b = true, .share_a = true, .share_b = true};
      Data<bf16, float> data(f);
      data.a = irregular<bf16>(f.m * f.k), data.b = irregular<bf16>(f.k * f.n);
      return on_gpu(f, data)[0];
    };
    const Numbers one = irregular_product(1), many = irregular_product(64);
    for (size_t first = 0; first < many.size(); first += one.size())
      CHECK(std::equal(one.begin(), one.end(), many.begin() + static_cast<int64_t>(first)));
  }
}

// Whole numbers that need 2 or 3 bf16 terms on one side; 0 and 1 on the other side. Every product
// of terms counts, and all are exact.
TEST_CASE("products on a GPU: the bf16 terms of an f32 element add up to it") {
  if (no_gpu()) return;
  for (const int terms : {2, 3})
    for (int form = 0; form < 8; ++form) {
      const Form f{.m = 70,
                   .n = 69,
                   .k = 33,
                   .transpose_a = (form & 1) != 0,
                   .transpose_b = (form & 2) != 0,
                   .gap = form == 3 ? 3 : 0,
                   .bf16_terms = terms};
      Data<float> data(f);
      std::vector<float>&large = form & 4 ? data.a : data.b, &small = form & 4 ? data.b : data.a;
      const int bits = terms == 2 ? 16 : 18;
      for (size_t i = 0; i < large.size(); ++i)
        if (large[i] == large[i]) large[i] = static_cast<float>((i * 2654435761u >> 7 & ((1u << bits) - 1)) | 1u);
      for (float& x : small)
        if (x == x) x = static_cast<int>(x) & 1 ? 1.f : 0.f;
      CAPTURE(terms);
      CAPTURE(form);
      CHECK(on_gpu(f, data) == by_hand(f, data));
    }
}

TEST_CASE("products on a GPU: NaN and infinity affect their row or column only") {
  if (no_gpu()) return;
  const Form f{.m = 70, .n = 75, .k = 40};
  Data<float> data(f);
  std::fill(data.a.begin(), data.a.end(), 1.f), std::fill(data.b.begin(), data.b.end(), 2.f);
  data.a[static_cast<size_t>(20 * f.k + 3)] = std::numeric_limits<float>::quiet_NaN();
  data.b[static_cast<size_t>(5 * f.n + 74)] = std::numeric_limits<float>::infinity();
  const Numbers c = on_gpu(f, data)[0];
  int wrong = 0;
  for (int64_t i = 0; i < f.m; ++i)
    for (int64_t j = 0; j < f.n; ++j) {
      const double value = c[static_cast<size_t>(i * f.n + j)];
      wrong += !(i == 20 ? std::isnan(value) : j == 74 ? std::isinf(value) : value == 80);
    }
  CHECK(wrong == 0);
}

#if defined(EMULATE_CUDA)
bool all_right() {
  return right<float>({.m = 70, .n = 66, .k = 40}) && right<double>({.m = 66, .n = 65, .k = 33, .transpose_b = true}) &&
         right<float>({.m = 20, .n = 36, .k = 1024, .transpose_a = true}) &&
         right<float>({.m = 40, .n = 130, .k = 40, .batch = 64});
}
bool all_right_on_tensor_cores() {  // accumulation: not by the pipeline, see pipeline_test.cpp
  return right<bf16>({.m = 70, .n = 66, .k = 200}) && right<bf16>({.m = 136, .n = 72, .k = 136, .transpose_b = true}) &&
         right<bf16>({.m = 24, .n = 40, .k = 1024, .transpose_a = true}) &&
         right<bf16>({.m = 128, .n = 136, .k = 168, .batch = 128, .share_b = true, .accumulate = true}) &&
         right<bf16>({.m = 256, .n = 136, .k = 168, .batch = 64, .share_b = true, .accumulate = true});
}
bool all_right_split() {
  return right<float>({.m = 70, .n = 66, .k = 40, .bf16_terms = 3}) &&
         right<float>({.m = 66, .n = 130, .k = 33, .transpose_b = true, .bf16_terms = 2});
}
TEST_CASE("every barrier of the products is needed") {
  if (thread_sanitizer) return;
  check_that_every_barrier_is_needed("cuda/matmul/matmul.cuh", all_right);
  for (const bool groups : {true, false}) {
    cuda_on_cpu::options.architecture = groups ? 90 : 80;
    const char* const path = groups ? "cuda/matmul/warp_group_tiles.cuh" : "cuda/matmul/tensor_core_tiles.cuh";
    check_that_every_barrier_is_needed(path, all_right_on_tensor_cores);
  }
  cuda_on_cpu::options = {};
  check_that_every_barrier_is_needed("cuda/matmul/bf16_split.cuh", all_right_split);
}
TEST_CASE("an insufficient wait for copies changes the product") {
  if (thread_sanitizer) return;
  cuda_on_cpu::options.lax_waits = true;
  CHECK_FALSE(right<float>({.m = 64, .n = 64, .k = 64}));
  CHECK_FALSE(right<double>({.m = 5, .n = 5, .k = 5}));
  for (const int architecture : {80, 90}) {
    cuda_on_cpu::options.architecture = architecture;
    CHECK_FALSE(right_in_every_order([] { return right<bf16>({.m = 64, .n = 64, .k = 128}); }));
  }
  cuda_on_cpu::options = {};
}
#endif

}  // namespace
}  // namespace orrery
