// Products of bf16 by warp groups with different tasks, on a GPU or its emulation: bit by bit equal to
// those of the other kernel.
#include "engine/loops/loops.h"  // so that nvcc compiles this file

#include <doctest/doctest.h>

#include <cmath>

#include "cuda/matmul/activation.cuh"
#include "tests/cuda/matmul/bent.h"
#include "tests/cuda/matmul/products.h"

namespace orrery {
namespace {

// Returns irregular numbers: the rounding of their sums reveals any other order.
std::vector<bf16> irregular(size_t count, double seed) {
  std::vector<bf16> x(count);
  for (size_t i = 0; i < count; ++i) {
    const double angle = seed + static_cast<double>(i * i % 9973);
    x[i] = bf16(static_cast<float>(std::sin(angle)));
  }
  return x;
}
void make_irregular(std::vector<bf16>& x, double seed) {  // all but NaN
  const std::vector<bf16> numbers = irregular(x.size(), seed);
  for (size_t i = 0; i < x.size(); ++i)
    if (!std::isnan(static_cast<float>(x[i]))) x[i] = numbers[i];
}

enum class Kind { sum, value, derivative };  // AddBias, Activated, ActivatedBackward
struct Product {
  Form form;
  Kind kind = Kind::sum;
};

// Returns the outputs, the second matrix last. pipeline: by this kernel, which the sizes must allow; else by the other
// one, which accumulates into zeros.
std::vector<Numbers> results(const Product& product, bool pipeline) {
  const Form& f = product.form;
  Data<bf16> data(f);
  make_irregular(data.a, 1), make_irregular(data.b, 2), make_irregular(data.bias, 3);
  const std::vector<bf16> elements = irregular(static_cast<size_t>(f.batch * f.m * f.n), 4);
  DeviceArray<bf16> a(Device::cuda, data.a), b(Device::cuda, data.b), bias(Device::cuda, data.bias),
      per_element(Device::cuda, elements), second(Device::cuda, f.batch * f.m * f.n);
  cuda::Matmul<bf16> p{f.m, f.n, f.k, f.batch, {}, {}, {}, !pipeline, nullptr, nullptr};
  p.a = {a.data(), f.stride_a(), f.share_a ? 0 : f.size_a(), false};
  p.b = {b.data(), f.stride_b(), f.share_b ? 0 : f.size_b(), f.transpose_b};
  std::vector<std::unique_ptr<DeviceArray<bf16>>> c;
  for (size_t output = 0; output < f.output_columns().size(); ++output) {
    const int64_t columns = f.output_columns()[output];
    c.push_back(std::make_unique<DeviceArray<bf16>>(Device::cuda, f.batch * f.m * columns));
    p.c[output] = {c.back()->data(), columns};
  }
  const auto run = [&](const auto& epilogue) {
    using Kernels = cuda::TensorCoreKernels<256>;
    REQUIRE(cuda::pipelined(cuda::plan_of<Kernels>(p, epilogue)) == pipeline);
    cuda::run_matmul<Kernels>(p, epilogue);
  };
  const bf16* const column = f.bias ? bias.input() : nullptr;
  if (product.kind == Kind::sum)
    run(cuda::AddBias<bf16>{column, f.residual ? per_element.input() : nullptr});
  else if (product.kind == Kind::value)
    run(cuda::Activated<bf16, Bent>{{}, second.data(), column});
  else
    run(cuda::ActivatedBackward<bf16, Bent>{{}, second.data(), per_element.input()});
  std::vector<Numbers> all;
  for (const auto& output : c) all.push_back(output->read());
  all.push_back(second.read());
  return all;
}
void check_bits(const Product& product) {
  const Form& f = product.form;
  INFO(f.m, " x ", f.n, " x ", f.k, ", batch ", f.batch, ", transposed ", f.transpose_b, ", kind ",
       static_cast<int>(product.kind));
  const std::vector<Numbers> expected = results(product, false);
  at_every_landing([&] { CHECK(results(product, true) == expected); });
}
bool has_no_pipeline() { return no_gpu() || !cuda::warp_groups() || !cuda::has_tensor_maps(); }

// The emulated GPU has 4 multiprocessors. A GPU of 132 gets as many tiles by a batch.
int64_t batch_for(int64_t tiles) {
  return cuda::matmul_tiles(cuda::device_properties().multiprocessors, tiles);
}

TEST_CASE("pipelined products: sums with bias and residual have the other kernel's bits, at edges, too") {
  if (has_no_pipeline() || thread_sanitizer) return;
  for (const bool transpose_b : {false, true}) {
    const Form edges{.m = 200, .n = 264, .k = 72, .batch = batch_for(4), .transpose_b = transpose_b, .gap = 8};
    Form f = edges;
    check_bits({f});
    f.bias = true, f.k = 1;
    check_bits({f});
    f.residual = true, f.k = 130, f.gap = 6;
    check_bits({f});
    f.bias = false;
    check_bits({f});
    f = edges, f.bias = true, f.columns = {72, 0, 136, 56};
    check_bits({f});
    f = edges, f.batch *= 3, f.share_a = transpose_b, f.share_b = !transpose_b, f.residual = true, f.batch_gap = 16;
    check_bits({f});
  }
}
TEST_CASE("pipelined products: activations and their derivatives have the other kernel's bits") {
  if (has_no_pipeline() || thread_sanitizer) return;
  for (const bool bias : {false, true})
    check_bits({{.m = 200, .n = 264, .k = 72, .batch = batch_for(4), .transpose_b = true, .bias = bias}, Kind::value});
  check_bits({{.m = 200, .n = 264, .k = 72, .batch = 3 * batch_for(4)}, Kind::derivative});
}

TEST_CASE("pipelined products: tiles of 256 x 192 are used only where they take less time") {
  const auto columns = [](int64_t n, int64_t k, bool in_pipeline) {
    cuda::Matmul<bf16> p{8192, n, k, 1, {}, {}, {}, false, nullptr, nullptr};
    p.c[0].columns = n;
    return cuda::columns_of_tiles(p, 132, in_pipeline);
  };
  CHECK(columns(2304, 768, false) == 192);  // 3 rounds for 5
  CHECK(columns(2304, 768, true) == 256);
  CHECK(columns(768, 768, true) == 192);  // 1 round for 2
  CHECK(columns(3072, 768, true) == 256);
}

#if defined(EMULATE_CUDA)
// Three tiles for some blocks, of two steps.
const Product three_tiles[] = {{{.m = 130, .n = 1288, .k = 72, .bias = true, .residual = true}},
                               {{.m = 130, .n = 1288, .k = 72, .transpose_b = true, .bias = true}, Kind::value},
                               {{.m = 130, .n = 1288, .k = 72}, Kind::derivative}};
TEST_CASE("pipelined products: every barrier, arrival, wait and fence is needed") {
  if (thread_sanitizer || !cuda::warp_groups()) return;
  std::vector<std::vector<Numbers>> expected;
  for (const Product& product : three_tiles) expected.push_back(results(product, false));
  const auto all_right = [&] {
    for (size_t i = 0; i < std::size(three_tiles); ++i)
      if (results(three_tiles[i], true) != expected[i]) return false;
    return true;
  };
  const auto right = [&] { return right_at_every_landing(all_right); };
  check_that_every_barrier_is_needed("cuda/matmul/tensor_core_pipeline.cuh", right, all_barriers);
}
TEST_CASE("pipelined products: other products and older drivers use the other kernel") {
  if (!cuda::warp_groups()) return;
  alignas(16) bf16 array[64] = {};
  cuda::Matmul<bf16> p{1024, 512, 64, 1, {array, 64, 0, false}, {array, 64, 0, true}, {}, false, nullptr, nullptr};
  p.c[0] = {array, 512};
  const auto is_pipelined = [](const cuda::Matmul<bf16>& product) {
    return cuda::pipelined(cuda::plan_of<cuda::TensorCoreKernels<256>>(product, cuda::Plain<bf16>{}));
  };
  CHECK(is_pipelined(p));
  const auto changed = [&](const auto& change) {
    cuda::Matmul<bf16> other = p;
    change(other);
    return is_pipelined(other);
  };
  CHECK_FALSE(changed([](auto& q) { q.m = 128; }));  // fewer tiles than multiprocessors
  CHECK_FALSE(changed([](auto& q) { q.accumulate = true; }));
  CHECK_FALSE(changed([](auto& q) { q.a.transposed = true; }));
  CHECK_FALSE(changed([](auto& q) { q.n = q.c[0].columns = 508; }));  // rows of C are not aligned
  CHECK_FALSE(changed([&](auto& q) { q.c[0].data = array + 1; }));
  CHECK_FALSE(changed([](auto& q) { q.m = int64_t{1} << 31; }));
  cuda_on_cpu::options.has_tensor_maps = false;
  CHECK_FALSE(is_pipelined(p));
  cuda_on_cpu::options = {};
}
#endif

}  // namespace
}  // namespace orrery
