// Device memory traffic of warps in sectors of 32 bytes: a kernel with scattered lanes is found,
// and the kernels of the loops request hardly more than they need.
#include <doctest/doctest.h>

#include "engine/loops/loops.h"

#if defined(EMULATE_CUDA) && defined(ORRERY_WATCHES_ACCESSES)

#include <utility>

#include "cuda/runtime/launch.cuh"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/bank_conflicts.h"
#include "tests/support/sectors.h"

namespace orrery {
namespace {

using cuda_on_cpu::SectorTraffic;

// Returns the traffic of the launches in `run`; each launch counts its first block.
template <class F>
SectorTraffic traffic_of(const F& run) {
  const bool before = std::exchange(cuda_on_cpu::counts_bank_traffic, true);
  run();
  cuda_on_cpu::counts_bank_traffic = before;
  return cuda_on_cpu::latest_sector_traffic;
}
template <class F>
double ratio_to_minimum(const F& run) {
  const SectorTraffic t = traffic_of(run);
  REQUIRE(t.minimum > 0);
  return static_cast<double>(t.touched) / static_cast<double>(t.minimum);
}

__global__ void strided_kernel(float* out, const float* in, int stride) {
  const int i = static_cast<int>(threadIdx.x) * stride;
  out[i] = 2 * in[i];
}
struct alignas(16) Four {
  float value[4];
};
__global__ void four_kernel(Four* out, const Four* in, int stride) {
  const int i = static_cast<int>(threadIdx.x) * stride;
  out[i] = in[i];
}
TEST_CASE("coalescing: scattered loads and stores of a warp are counted") {
  constexpr int lanes = 32, widest = 16;
  DeviceArray<float> out(Device::cuda, 4 * lanes * widest), in(Device::cuda, 4 * lanes * widest);
  const auto strided = [&](int stride) {
    return traffic_of([&] { cuda::launch({"strided", 3, lanes}, strided_kernel, out.data(), in.input(), stride); });
  };
  for (const auto& [stride, touched, minimum] : {std::array{1, 8, 8}, {2, 16, 8}, {8, 64, 8}, {16, 64, 8}, {0, 2, 2}}) {
    const int elements = stride;
    CAPTURE(elements);
    CHECK(strided(stride).touched == static_cast<uint64_t>(touched));  // 4 sectors loaded, 4 stored, if adjacent
    CHECK(strided(stride).minimum == static_cast<uint64_t>(minimum));
  }
  const auto four = [&](int stride) {
    auto* const to = reinterpret_cast<Four*>(out.data());
    const auto* const from = reinterpret_cast<const Four*>(in.input());
    return traffic_of([&] { cuda::launch({"four", 3, lanes}, four_kernel, to, from, stride); });
  };
  CHECK(four(1).touched == 32);
  CHECK(four(1).minimum == 32);
  CHECK(four(2).touched == 64);
  CHECK(four(2).minimum == 32);
}

__global__ void failing_kernel(float* out, const float* in, unsigned at_block) {
  out[threadIdx.x] = in[threadIdx.x];
  if (blockIdx.x != at_block) return;
  if (threadIdx.x == 0)
    __syncthreads();
  else
    __syncthreads();
}
TEST_CASE("coalescing: a failed launch does not affect the counts of the next launch") {
  constexpr int lanes = 32;
  DeviceArray<float> out(Device::cuda, lanes), in(Device::cuda, lanes);
  cuda_on_cpu::options.workers = 1;  // the first block is done before the second fails
  for (const unsigned at_block : {0u, 1u}) {
    const auto fail = [&] { cuda::launch({"failing", 2, lanes}, failing_kernel, out.data(), in.input(), at_block); };
    const auto right = [&] { cuda::launch({"strided", 2, lanes}, strided_kernel, out.data(), in.input(), 1); };
    const auto both = [&] {
      expect_fault(fail).names("__syncthreads").value("two places").offers("coalescing_test.cpp:");
      right();
    };
    CHECK(traffic_of(both).touched == 8);
  }
  cuda_on_cpu::options = {};
}

struct Sum {
  HOST_DEVICE float operator()(float a, float b) const { return a + b; }
};
TEST_CASE("coalescing: maps load and store no more sectors than they need") {
  constexpr int64_t rows = 96, columns = 64, n = rows * columns;
  DeviceArray<float> out(Device::cuda, n + 1), a(Device::cuda, n + 1), b(Device::cuda, n + 1);
  CHECK(ratio_to_minimum([&] { cuda::map(n, Sum{}, out.data(), a.input(), b.input()); }) == 1);
  // One element further there are no packs of 16 bytes; a warp's 128 bytes span five sectors.
  CHECK(ratio_to_minimum([&] { cuda::map(n, Sum{}, out.data() + 1, a.input() + 1, b.input() + 1); }) == 1.25);
  Broadcast<2> shape{2, {rows, columns}, {{columns, 1}, {0, 1}}};
  CHECK(ratio_to_minimum([&] { cuda::map(shape, Sum{}, out.data(), a.input(), b.input()); }) == 1);
}

struct Element {
  const float* all;
  HOST_DEVICE float operator()(int64_t i, int64_t) const { return all[i]; }
};
TEST_CASE("coalescing: sums along every axis load and store no more sectors than they need") {
  constexpr int64_t rows = 256, columns = 512;
  DeviceArray<float> in(Device::cuda, rows * columns), out(Device::cuda, rows + columns);
  const Element element{in.input()};
  CHECK(ratio_to_minimum([&] { cuda::reduce(rows, columns, 1, element, out.data()); }) <= 1.05);
  CHECK(ratio_to_minimum([&] { cuda::reduce(1, rows, columns, element, out.data()); }) <= 1.05);
  CHECK(ratio_to_minimum([&] { cuda::reduce(1, rows * columns, 1, element, out.data()); }) <= 1.05);
}

// Subtracts the largest value of a row, which is preloaded and written as packs.
struct LessTheLargest {
  const float* in;
  float* out;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(const Row& row, int64_t r) const {
    const In<float> x{in + r * n};
    const auto held = row.preload(x);
    const float largest = row.max([](float v) { return v; }, held);
    row.map(
        Out<float>{out + r * n}, [=](float v) { return v - largest; }, held);
  }
};
TEST_CASE("coalescing: rows of every length load and store no more sectors than they need") {
  for (const int n : {8, 16, 256, 1024, 6000}) {
    const double max_ratio = n <= 16 ? 1.34 : 1.05;  // the maximum starts with each row's first element, a sector
    CAPTURE(n);
    constexpr int64_t rows = 64;
    DeviceArray<float> in(Device::cuda, rows * n), out(Device::cuda, rows * n);
    CHECK(ratio_to_minimum([&] { cuda::rows(rows, n, LessTheLargest{in.input(), out.data(), n}); }) <= max_ratio);
  }
}

}  // namespace
}  // namespace orrery

#endif
