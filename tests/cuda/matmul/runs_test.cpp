// Gradients of weights in equal runs, on a GPU or its emulation.
#include "engine/loops/loops.h"  // so that nvcc compiles this file

#include <doctest/doctest.h>

#include <cmath>

#include "cuda/matmul/tensor_core_runs.cuh"
#include "cuda/runtime/waiting.h"
#include "tests/cuda/matmul/products.h"

namespace orrery {
namespace {

struct Gradient {  // of weights and biases, in runs
  Form f;
  Data<bf16, float> data{f};
  DeviceArray<bf16> a{Device::cuda, data.a}, b{Device::cuda, data.b};
  DeviceArray<float> c{Device::cuda, data.c[0]}, row_sums{Device::cuda, data.row_sums};

  explicit Gradient(const Form& form) : f(form) {}
  Gradient(const Form& form, const Data<bf16, float>& of) : f(form), data(of) {}
  void run(bool may_wait = false) {
    cuda::Matmul<bf16, float> p{f.m, f.n, f.k, 1, {}, {}, {}, f.accumulate, nullptr, nullptr};
    p.a = {a.data() + f.offset, f.stride_a(), 0, true}, p.b = {b.data() + f.offset, f.stride_b(), 0, false};
    p.c[0] = {c.data() + f.offset, f.n}, p.may_wait = may_wait;
    if (f.row_sums) p.row_sums = row_sums.data(), p.accumulate_row_sums = f.accumulate_row_sums;
    int64_t begin = 0;
    for (size_t i = 0; i < f.a_columns.size(); begin += f.a_columns[i++])
      p.a_parts[i] = {a.data() + begin, f.a_columns[i], f.m};
    cuda::multiply_in_runs(p);
  }
  std::vector<Numbers> read() {
    std::vector<Numbers> all = {c.read()};
    if (f.row_sums) all.push_back(row_sums.read());
    return all;
  }
};
void check_runs(const Form& f) {
  INFO(f.m, " x ", f.n, " x ", f.k, ", offset ", f.offset, ", ", f.a_columns.size(), " parts");
  Gradient gradient(f);
  gradient.run();
  CHECK(gradient.read() == by_hand(f, gradient.data));
}
Form form_of(int64_t m, int64_t n, int64_t k) { return {.m = m, .n = n, .k = k, .transpose_a = true}; }

TEST_CASE("gradients of weights in runs: whole tiles, cut ones, and runs without a step") {
  if (thread_sanitizer) return;
  check_runs(form_of(128, 256, 64));  // one step
  Form f = form_of(130, 260, 1640);   // 104 steps
  f.row_sums = true;
  check_runs(f);
  f = form_of(260, 300, 1510), f.row_sums = f.accumulate = f.accumulate_row_sums = true;  // 144 steps
  f.a_columns = {128, 4, 128};
  check_runs(f);
  f = form_of(17, 300, 200), f.row_sums = true, f.offset = 1;
  check_runs(f);
}

TEST_CASE("gradients of weights in runs: several products that wait are launched together, with the same bits") {
  if (thread_sanitizer) return;
  Form f = form_of(130, 260, 1640);
  f.row_sums = true;
  Data<bf16, float> irregular(f);
  for (auto* x : {&irregular.a, &irregular.b})
    for (size_t i = 0; i < x->size(); ++i)
      (*x)[i] = bf16(static_cast<float>(std::sin(static_cast<double>(i * i % 9973))));
  Gradient alone(f, irregular), first(f, irregular), second(form_of(40, 300, 900)), third(f);
  alone.run(true);  // no guard lives: does not wait
  const std::vector<Numbers> before = third.read();
  {
    const cuda::WaitingKernels guard;
    first.run(true), second.run(true), third.run(true);
    CHECK(third.read() == before);
    cuda::WaitingKernels::launch(second.c.data());
    CHECK(first.read() == alone.read());
    CHECK(second.read() == by_hand(second.f, second.data));
    CHECK(third.read() == by_hand(f, third.data));
  }
}

#if defined(EMULATE_CUDA)
TEST_CASE("gradients of weights in runs: the barrier between two tiles is needed") {
  if (thread_sanitizer) return;
  const Form f = form_of(133 * 128, 8, 8);  // one run has two tiles
  const std::vector<Numbers> expected = by_hand(f, Data<bf16, float>(f));
  check_that_every_barrier_is_needed("cuda/matmul/tensor_core_runs.cu", [&] {
    Gradient gradient(f);
    gradient.run();
    return gradient.read() == expected;
  });
}
#endif

TEST_CASE("gradients of weights in runs: where tiles do not fill rounds of blocks") {
  const auto runs = [](int64_t m, int64_t n, int64_t k, bool transposed = true) {
    cuda::Matmul<bf16, float> p{m, n, k, 1, {}, {}, {}, false, nullptr, nullptr};
    p.a.transposed = transposed, p.c[0].columns = n;
    return cuda::in_runs(p);
  };
  CHECK(runs(768, 768, 8192));
  CHECK(runs(2304, 768, 8192));
  CHECK(runs(3072, 768, 8192));
  CHECK_FALSE(runs(3072, 768, 8192, false));
  CHECK_FALSE(runs(50257, 768, 8192));       // tiles for 9 rounds
  CHECK_FALSE(runs(384, 384, 2048));         // few steps
  CHECK_FALSE(runs(128 * 11, 256 * 12, 64)); // one whole round
}

}  // namespace
}  // namespace orrery
