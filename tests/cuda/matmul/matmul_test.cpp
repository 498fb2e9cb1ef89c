// The product kernels, on a GPU or its emulation, against the definition. Sums of whole numbers are
// equal in any order, so equal means ==.
#include "cuda/matmul/matmul.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

struct Form {
  int64_t m, n, k, batch = 1;
  bool transpose_a = false, transpose_b = false, share_a = false, share_b = false, accumulate = false;
  bool bias = false, residual = false;
  std::vector<int64_t> columns = {};  // columns of each output; none: one output
  int64_t gap = 0;                    // elements between the stored rows of A and of B
  int64_t batch_gap = 0;              // elements between the matrices
  int64_t offset = 0;                 // distance of every array from an aligned address
  int bf16_terms = 0;                 // bf16 terms of an f32 element
  bool row_sums = false, accumulate_row_sums = false;

  int64_t rows_a() const { return transpose_a ? k : m; }
  int64_t rows_b() const { return transpose_b ? n : k; }
  int64_t stride_a() const { return (transpose_a ? m : k) + gap; }
  int64_t stride_b() const { return (transpose_b ? k : n) + gap; }
  int64_t size_a() const { return rows_a() * stride_a() + batch_gap; }
  int64_t size_b() const { return rows_b() * stride_b() + batch_gap; }
  std::vector<int64_t> output_columns() const { return columns.empty() ? std::vector<int64_t>{n} : columns; }
};

template <class T>
double number(T x) {
  return static_cast<double>(static_cast<Arithmetic<T>>(x));
}

// Returns stored rows, with NaN where the product must not read: in the gaps and in front.
template <class T>
std::vector<T> stored(const Form& f, int64_t matrices, int64_t size, int64_t rows, int64_t stride, uint32_t seed) {
  std::vector<T> x(static_cast<size_t>(f.offset + matrices * size),
                   static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
  const std::vector<T> numbers = whole_numbers<T>(matrices * rows * (stride - f.gap), seed);
  for (int64_t r = 0; r < matrices * rows; ++r)
    std::copy_n(numbers.data() + r * (stride - f.gap), stride - f.gap,
                x.data() + f.offset + r / rows * size + r % rows * stride);
  return x;
}

template <class T, class Result = T>
struct Data {
  std::vector<T> a, b;
  std::vector<Result> bias;
  std::vector<Arithmetic<T>> row_sums;
  std::vector<std::vector<Result>> c, residual;  // for each output
  explicit Data(const Form& f)
      : a(stored<T>(f, f.share_a ? 1 : f.batch, f.size_a(), f.rows_a(), f.stride_a(), 1)),
        b(stored<T>(f, f.share_b ? 1 : f.batch, f.size_b(), f.rows_b(), f.stride_b(), 2)),
        bias(whole_numbers<Result>(f.n, 3)),
        row_sums(whole_numbers<Arithmetic<T>>(f.m, 6)) {
    for (const int64_t columns : f.output_columns()) {
      c.push_back(whole_numbers<Result>(f.offset + f.batch * f.m * columns, 4));
      residual.push_back(whole_numbers<Result>(f.batch * f.m * columns, 5));
    }
  }
};

template <class T, class Result>
std::vector<Numbers> by_hand(const Form& f, const Data<T, Result>& data) {
  std::vector<Numbers> result;
  int64_t first = 0;
  for (size_t output = 0; output < data.c.size(); first += f.output_columns()[output++]) {
    Numbers c;
    for (const Result x : data.c[output]) c.push_back(number(x));
    const int64_t columns = f.output_columns()[output];
    for (int64_t r = 0; r < f.batch * f.m; ++r)
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t s = r / f.m, i = r % f.m, column = first + j;
        const T* const a = data.a.data() + f.offset + (f.share_a ? 0 : s * f.size_a());
        const T* const b = data.b.data() + f.offset + (f.share_b ? 0 : s * f.size_b());
        double& to = c[static_cast<size_t>(f.offset + r * columns + j)];
        double sum = f.accumulate ? to : 0;
        for (int64_t k = 0; k < f.k; ++k)
          sum += number(f.transpose_a ? a[k * f.stride_a() + i] : a[i * f.stride_a() + k]) *
                 number(f.transpose_b ? b[column * f.stride_b() + k] : b[k * f.stride_b() + column]);
        if (f.bias) sum += number(data.bias[static_cast<size_t>(column)]);
        if (f.residual) sum += number(data.residual[output][static_cast<size_t>(r * columns + j)]);
        to = number(static_cast<Result>(static_cast<Arithmetic<Result>>(sum)));
      }
    result.push_back(c);
  }
  if (f.row_sums) {
    Numbers sums;
    for (int64_t i = 0; i < f.m; ++i) {
      double sum = f.accumulate_row_sums ? number(data.row_sums[static_cast<size_t>(i)]) : 0;
      for (int64_t k = 0; k < f.k; ++k) sum += number(data.a[static_cast<size_t>(f.offset + k * f.stride_a() + i)]);
      sums.push_back(sum);
    }
    result.push_back(sums);
  }
  return result;
}

template <class T, class Result>
std::vector<Numbers> on_gpu(const Form& f, const Data<T, Result>& data) {
  DeviceArray<T> a(Device::cuda, data.a), b(Device::cuda, data.b);
  DeviceArray<Result> bias(Device::cuda, data.bias), residual(Device::cuda, data.residual[0]);
  cuda::Matmul<T, Result> p{};
  p.m = f.m, p.n = f.n, p.k = f.k, p.batch = f.batch, p.accumulate = f.accumulate;
  p.a = {a.data() + f.offset, f.stride_a(), f.share_a ? 0 : f.size_a(), f.transpose_a};
  p.b = {b.data() + f.offset, f.stride_b(), f.share_b ? 0 : f.size_b(), f.transpose_b};
  p.bias = f.bias ? bias.data() : nullptr;
  p.residual = f.residual ? residual.data() : nullptr;
  DeviceArray<Arithmetic<T>> row_sums(Device::cuda, data.row_sums);
  if (f.row_sums) p.row_sums = row_sums.data(), p.accumulate_row_sums = f.accumulate_row_sums;
  std::vector<std::unique_ptr<DeviceArray<Result>>> c;
  for (size_t output = 0; output < data.c.size(); ++output) {
    c.push_back(std::make_unique<DeviceArray<Result>>(Device::cuda, data.c[output]));
    p.c[output] = {c.back()->data() + f.offset, f.output_columns()[output]};
  }
  if constexpr (std::is_same_v<T, float>)
    cuda::multiply(p, f.bf16_terms);
  else
    cuda::multiply(p);
  std::vector<Numbers> result;
  for (const auto& output : c) result.push_back(output->read());
  if (f.row_sums) result.push_back(row_sums.read());
  return result;
}

template <class T>
bool right(const Form& f) {
  const Data<T> data(f);
  return on_gpu(f, data) == by_hand(f, data);
}

template <class T, class Result = T>
void check_form(const Form& f) {
  INFO(name(dtype_of<T>), " to ", name(dtype_of<Result>), ": ", f.m, " x ", f.n, " x ", f.k, ", batch ", f.batch,
       ", transposed ", f.transpose_a, f.transpose_b, ", shared ", f.share_a, f.share_b, ", accumulate ", f.accumulate,
       ", bias ", f.bias, ", residual ", f.residual, ", ", f.output_columns().size(), " parts, gap ", f.gap,
       ", offset ", f.offset, ", elements in ", f.bf16_terms, " parts");
  const Data<T, Result> data(f);
  CHECK(on_gpu(f, data) == by_hand(f, data));
}
void check_transposes(Form f) {
  for (int form = 0; form < 4; ++form) {
    f.transpose_a = form & 1, f.transpose_b = form & 2;
    check_form<float>(f);
    check_form<double>(f);
    check_form<bf16>(f);
    check_form<bf16, float>(f);
    Form split_form = f;
    split_form.bf16_terms = 1 + static_cast<int>((f.m + f.n + form) % 3);
    check_form<float>(split_form);
  }
}

TEST_CASE("products on a card: sizes about those of a step and of a tile, in all forms") {
  if (no_gpu()) return;
  for (const Form& f : {Form{1, 1, 1}, Form{1, 64, 16}, Form{5, 3, 17}, Form{64, 64, 32}, Form{63, 65, 33},
                        Form{66, 130, 15}, Form{128, 64, 48}, Form{4, 200, 40}, Form{200, 4, 64}})
    check_transposes(f);
}

TEST_CASE("products on a card: large tiles, in all forms") {
  if (no_gpu()) return;
  // As many tiles of 128 x 128 as a GPU has multiprocessors, most of them in a batch.
  check_transposes({.m = 128, .n = 128, .k = 32, .batch = 128});
  if (thread_sanitizer) return;
  check_transposes({.m = 130, .n = 68, .k = 19, .batch = 64});
}

TEST_CASE("products on a card: wide tiles of tensor cores, and more tiles down than a band has") {
  if (no_gpu() || thread_sanitizer) return;
  for (int form = 0; form < 4; ++form) {
    Form f{.m = 130, .n = 200, .k = 40, .batch = 64, .accumulate = form % 2 == 0, .bias = true, .residual = form > 1};
    f.transpose_a = form & 1, f.transpose_b = form & 2;
    check_form<bf16>(f);
    check_form<bf16, float>(f);
    f.n = 199, f.k = 41, f.offset = 1;
    check_form<bf16>(f);
    f.residual = false, f.columns = {65, 0, 40, 94};
    check_form<bf16>(f);
    check_form<bf16>({.m = 2200, .n = 136, .k = 8, .transpose_a = f.transpose_a, .transpose_b = f.transpose_b});
  }
}

// 64 matrices of one such tile take fewer rounds than 128 half tiles.
TEST_CASE("products on a card: tiles of 256 x 192 on tensor cores") {
  if (no_gpu() || thread_sanitizer) return;
  for (int form = 0; form < 4; ++form) {
    Form f{.m = 250, .n = 190, .k = 40, .batch = 64, .accumulate = form % 2 == 0, .bias = true, .residual = form > 1};
    f.transpose_a = form & 1, f.transpose_b = form & 2;
    check_form<bf16>(f);
    check_form<bf16, float>(f);
    f.n = 183, f.k = 73, f.offset = 1;
    check_form<bf16>(f);
    f.residual = false, f.columns = {65, 0, 20, 98};
    check_form<bf16>(f);
  }
}

TEST_CASE("products on a card: accumulation, bias and residual, in that order") {
  if (no_gpu()) return;
  for (int form = 0; form < 8; ++form)
    for (const int64_t n : {68, 69})
      check_transposes({.m = 37,
                        .n = n,
                        .k = 20,
                        .batch = 2,
                        .accumulate = (form & 1) != 0,
                        .bias = (form & 2) != 0,
                        .residual = (form & 4) != 0});
}

TEST_CASE("products on a card: batches, with one side shared") {
  if (no_gpu()) return;
  for (const bool share_a : {false, true})
    for (const bool share_b : {false, true})
      check_transposes({.m = 11, .n = 70, .k = 18, .batch = 3, .share_a = share_a, .share_b = share_b});
}

TEST_CASE("products on a card: several outputs side by side") {
  if (no_gpu()) return;
  for (const bool accumulate : {false, true}) {
    check_transposes({.m = 40, .n = 192, .k = 24, .accumulate = accumulate, .bias = true, .columns = {64, 64, 64}});
    check_transposes({.m = 9, .n = 170, .k = 24, .accumulate = accumulate, .bias = true, .columns = {65, 0, 2, 103}});
    check_transposes({.m = 9, .n = 12, .k = 6, .batch = 2, .accumulate = accumulate, .columns = {4, 8}});
  }
}

TEST_CASE("products on a card: rows that are apart, and addresses that are not aligned") {
  if (no_gpu()) return;
  for (const int64_t gap : {0, 4, 7})
    for (const int64_t offset : {0, 1, 4}) check_transposes({.m = 32, .n = 72, .k = 36, .gap = gap, .offset = offset});
  check_transposes({.m = 69, .n = 71, .k = 17, .gap = 3});  // aligned rows that end within 16 bytes
  check_transposes({.m = 70, .n = 66, .k = 18, .batch = 2, .gap = 2, .batch_gap = 1});
}

// The operand changes, against the promise, to show which copy was read.
TEST_CASE("products on a card: rows that are not aligned are copied once while the copies are kept") {
  if (no_gpu()) return;
  constexpr int64_t n = 9;
  DeviceArray<bf16> a(Device::cuda, std::vector<bf16>(n * n, bf16(1.f))), c(Device::cuda, n * n);
  const std::vector<bf16> twos(n * n, bf16(2.f));
  const auto product = [&](bool transpose_a) {
    cuda::Matmul<bf16> p{.m = n,
                         .n = n,
                         .k = n,
                         .batch = 1,
                         .a = {a.data(), n, 0, transpose_a},
                         .b = {a.data(), n, 0, false},
                         .c = {},
                         .accumulate = false,
                         .bias = nullptr,
                         .residual = nullptr};
    p.c[0] = {c.data(), n};
    cuda::multiply(p);
    return c.read()[0];
  };
  {
    const cuda::AlignedCopies kept;
    CHECK(product(false) == 9);
    cuda::copy(a.data(), true, twos.data(), false, n * n * int64_t{sizeof(bf16)});
    CHECK(product(true) == 9);
  }
  CHECK(product(false) == 36);
}

TEST_CASE("products on a card: few tiles and a long k are cut into pieces") {
  if (no_gpu()) return;
  check_transposes({.m = 20, .n = 36, .k = 1024});
  for (int form = 0; form < 12; ++form)
    check_form<float>({.m = 20,
                       .n = 36,
                       .k = 600,
                       .transpose_a = form % 2 != 0,
                       .transpose_b = form / 2 % 2 != 0,
                       .bf16_terms = 1 + form / 4});
  check_transposes({.m = 5, .n = 70, .k = 1531, .accumulate = true, .bias = true, .residual = true});
  check_transposes({.m = 5, .n = 70, .k = 700, .batch = 3, .accumulate = true, .bias = true, .columns = {69, 1}});
}

TEST_CASE("products on a card: the sums of A's rows, beside gradients of weights") {
  if (no_gpu()) return;
  for (const bool accumulate : {false, true}) {
    const auto check_sums = [&](Form f) {
      f.transpose_a = f.row_sums = true, f.accumulate_row_sums = accumulate, f.accumulate = !accumulate;
      check_form<bf16, float>(f);
    };
    check_sums({.m = 5, .n = 3, .k = 17});
    check_sums({.m = 136, .n = 264, .k = 64});
    check_sums({.m = 69, .n = 71, .k = 50, .gap = 3, .offset = 1});  // unaligned rows
    check_sums({.m = 200, .n = 36, .k = 1024});                      // split K
    check_sums({.m = 3, .n = 5, .k = 0});
    if (thread_sanitizer) continue;
    check_sums({.m = 128 * 128 - 9, .n = 200, .k = 40});  // wide tiles
    check_sums({.m = 128 * 128 - 9, .n = 136, .k = 72});  // tiles of 256 x 192
  }
}

TEST_CASE("products on a card: an empty inner size gives zeros, an empty result nothing") {
  if (no_gpu()) return;
  check_form<float>({.m = 3, .n = 5, .k = 0, .batch = 4});
  check_form<double>({.m = 3, .n = 5, .k = 0, .accumulate = true, .bias = true});
  check_form<float>({.m = 0, .n = 5, .k = 3});
  check_form<double>({.m = 3, .n = 0, .k = 3});
}

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
TEST_CASE("products on a card: close to the exact ones, with the same bits in every order of threads") {
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
TEST_CASE("products on a card: the bits of tensor cores do not depend on the tile") {
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
TEST_CASE("products on a card: elements of f32 in parts of bf16 are complete") {
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

TEST_CASE("products on a card: NaN and infinity reach their row or column and no other") {
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
bool all_right_on_tensor_cores() {
  return right<bf16>({.m = 70, .n = 66, .k = 200}) && right<bf16>({.m = 136, .n = 72, .k = 136, .transpose_b = true}) &&
         right<bf16>({.m = 24, .n = 40, .k = 1024, .transpose_a = true}) &&
         right<bf16>({.m = 128, .n = 136, .k = 168, .batch = 128, .share_b = true}) &&
         right<bf16>({.m = 256, .n = 136, .k = 168, .batch = 64, .share_b = true});
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
TEST_CASE("a wait for copies that is too lax shows in the product") {
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
