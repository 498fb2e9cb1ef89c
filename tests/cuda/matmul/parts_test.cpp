// Products of bf16 whose A is several matrices side by side, on a GPU or its emulation: equal to the
// product of one matrix, bit by bit where both have the same tiles.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/cuda/matmul/products.h"
#if defined(EMULATE_CUDA)
#include "cuda/matmul/tensor_core_kernels.cuh"
#endif

namespace orrery {
namespace {

// Compares irregular numbers, because the rounding of their sums reveals any other order.
template <class Result>
void check_bits(Form f) {
  INFO(f.m, " x ", f.n, " x ", f.k, ", transposed ", f.transpose_a, f.transpose_b, ", offset ", f.offset);
  Data<bf16, Result> data(f);
  for (auto* x : {&data.a, &data.b})
    for (size_t i = 0; i < x->size(); ++i)
      (*x)[i] = bf16(static_cast<float>(std::sin(static_cast<double>(i * i % 9973))));
  const std::vector<Numbers> parts = on_gpu(f, data);
  f.a_columns.clear();
  CHECK(parts == on_gpu(f, data));
}

TEST_CASE("products with A in several matrices: gradients of inputs, along k") {
  if (no_gpu()) return;
  for (const bool transpose_b : {false, true}) {
    check_bits<bf16>({.m = 70, .n = 40, .k = 192, .transpose_b = transpose_b, .a_columns = {64, 128}});
    // Steps of 64 that begin in a split at 32 read joined matrices.
    check_bits<bf16>({.m = 24, .n = 16, .k = 1152, .transpose_b = transpose_b, .a_columns = {640, 64, 384, 64}});
    check_bits<bf16>({.m = 24, .n = 16, .k = 1024, .transpose_b = transpose_b, .a_columns = {512, 512}});
    check_bits<bf16>({.m = 300, .n = 520, .k = 256, .transpose_b = transpose_b, .a_columns = {64, 192}});
  }
  // Parts that no step can read, and unaligned ones, are joined.
  check_bits<bf16>({.m = 20, .n = 24, .k = 88, .a_columns = {40, 32, 16}});
  check_bits<bf16>({.m = 20, .n = 24, .k = 83, .a_columns = {5, 1, 70, 7}});
  check_bits<bf16>({.m = 20, .n = 24, .k = 128, .offset = 3, .a_columns = {64, 64}});
}

TEST_CASE("products with A in several matrices: gradients of weights, down C, with sums of A's rows") {
  if (no_gpu()) return;
  Form f{.m = 384, .n = 40, .k = 70, .transpose_a = true, .row_sums = true, .a_columns = {128, 256}};
  check_bits<float>(f);
  f.accumulate = f.accumulate_row_sums = true, f.n = 300, f.k = 520, f.m = 512, f.a_columns = {256, 128, 128};
  check_bits<float>(f);
  for (const int64_t offset : {0, 1}) {
    f = {.m = 332, .n = 72, .k = 600, .transpose_a = true, .offset = offset, .row_sums = true};
    f.a_columns = {200, 8, 24, 100};
    check_form<bf16, float>(f);
    f.m = 17, f.a_columns = {5, 12}, f.accumulate = true;
    check_form<bf16, float>(f);
  }
}

#if defined(EMULATE_CUDA)
TEST_CASE("products with A in several matrices: large tiles and the pipeline switch between them") {
  for (const int columns : {192, 256}) {
    Form f{.m = 256, .n = columns == 192 ? 384 : 1024, .k = 320, .a_columns = {64, 64, 192}};
    Data<bf16> data(f);
    cuda::Matmul<bf16> p{f.m, f.n, f.k, 1, {}, {}, {}, false, nullptr, nullptr};
    DeviceArray<bf16> b(Device::cuda, data.b), c(Device::cuda, f.m * f.n), joined(Device::cuda, data.a);
    p.a = {joined.data(), f.k, 0, false}, p.b = {b.data(), f.n, 0, false}, p.c[0] = {c.data(), f.n};
    const auto run = [&] {
      const cuda::AddBias<bf16> none{};
      columns == 192 ? cuda::run_matmul<cuda::TensorCoreKernels<192>>(p, none)
                     : cuda::run_matmul<cuda::TensorCoreKernels<256>>(p, none);
      return c.read();
    };
    const Numbers expected = run();
    CHECK(expected == by_hand(f, data)[0]);
    std::vector<std::unique_ptr<DeviceArray<bf16>>> parts;
    int64_t begin = 0;
    for (size_t i = 0; i < f.a_columns.size(); begin += f.a_columns[i++]) {
      std::vector<bf16> x;
      for (int64_t r = 0; r < f.m; ++r)
        x.insert(x.end(), data.a.begin() + r * f.k + begin, data.a.begin() + r * f.k + begin + f.a_columns[i]);
      parts.push_back(std::make_unique<DeviceArray<bf16>>(Device::cuda, x));
      p.a_parts[i] = {parts.back()->data(), f.a_columns[i], f.a_columns[i]};
    }
    p.a.data = nullptr;
    in_every_order([&] { CHECK(run() == expected); });
  }
}
#endif

}  // namespace
}  // namespace orrery
