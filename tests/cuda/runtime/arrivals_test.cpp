// Transaction barriers, on a GPU or its emulation, and the faults that the emulation finds.
#include "engine/loops/loops.h"  // so that nvcc compiles this file

#include <doctest/doctest.h>

#include "cuda/matmul/arrivals.cuh"
#include "cuda/matmul/warp_group.cuh"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

enum class Mistake {
  none,
  no_init,
  two_inits,
  outside,
  no_arrivals,
  no_arrival,
  two_arrivals,
  same_parity,
  late_wait,
  overwritten
};
constexpr int stages = 2;
struct Ring {
  cuda::TransactionBarrier full[stages], empty[stages];
  float value[stages];
};
// The first warp's first lane passes numbers to the second warp, which adds them up.
__global__ void __launch_bounds__(64) ring_kernel(const float* in, int n, float* out, Mistake mistake) {
  Ring& ring = cuda::shared_memory<Ring>();
  const bool is_producer = threadIdx.x == 0, is_consumer = threadIdx.x >= 32;
  cuda::wait_for_earlier();
  if (is_producer && mistake != Mistake::no_init) {
    for (int s = 0; s < stages; ++s) {
      ring.full[s].init(1);
      ring.empty[s].init(mistake == Mistake::no_arrivals ? 0 : 32);
    }
    if (mistake == Mistake::two_inits) ring.full[0].init(1);
    if (cuda::TransactionBarrier elsewhere; mistake == Mistake::outside) elsewhere.init(1);
    cuda::barriers_initialized();
  }
  __syncthreads();
  float sum = 0;
  unsigned parity = 0;
  for (int i = 0; i < n; ++i) {
    const int s = i % stages;
    if (is_producer) {
      ring.empty[s].wait(parity ^ 1);
      ring.value[s] = in[i];
      if (mistake == Mistake::overwritten && i == 2) ring.empty[1].state = 0;
      if (mistake != Mistake::no_arrival || i != 3) ring.full[s].arrive();
      if (mistake == Mistake::two_arrivals && i == 0) ring.full[s].arrive(), ring.full[s].arrive();
    }
    if (is_consumer) {
      if (mistake != Mistake::late_wait || i / stages % 2 == 1) ring.full[s].wait(parity);
      sum += ring.value[s];
      ring.empty[s].arrive();
    }
    if (s == stages - 1 && mistake != Mistake::same_parity) parity ^= 1;
  }
  if (is_consumer) out[threadIdx.x - 32] = sum;
}
void launch_ring(Mistake mistake) {
  std::vector<float> numbers;
  for (int i = 1; i <= 9; ++i) numbers.push_back(static_cast<float>(i));
  DeviceArray<float> in(Device::cuda, numbers), out(Device::cuda, 32);
  cuda::launch({"ring", 1, 64, sizeof(Ring)}, ring_kernel, in.input(), 9, out.data(), mistake);
  CHECK(out.read() == std::vector<double>(32, 45));
}

TEST_CASE("transaction barriers: two warps pass numbers through two places in turn") {
  if (no_gpu() || !cuda::warp_groups()) return;
  in_every_order([] { launch_ring(Mistake::none); });
}

#if defined(EMULATE_CUDA)
TEST_CASE("transaction barriers: a missing arrival is a deadlock that names the barrier and who waits") {
  in_every_order([] {
    expect_fault([] { launch_ring(Mistake::no_arrival); })
        .names("deadlock")
        .value("33 threads")
        .names("arrivals_test.cpp:")
        .value("phase")
        .names("arrivals_test.cpp:")
        .value("lacks")
        .value("1 arrival");
  });
}
TEST_CASE("transaction barriers: wrong initializations, arrivals and parities are errors") {
  if (thread_sanitizer) return;  // it would report the races that they lead to
  const auto fault = [](Mistake mistake) {
    return expect_fault([=] { launch_ring(mistake); }).names("transaction barrier");
  };
  in_every_order([&] {
    fault(Mistake::no_init).value("before its initialization").names("arrivals_test.cpp:");
    fault(Mistake::two_inits).value("twice").names("arrivals_test.cpp:");
    fault(Mistake::no_arrivals).value("0 arrivals").names("arrivals_test.cpp:");
    fault(Mistake::outside).value("8 aligned bytes").names("arrivals_test.cpp:");
    for (const Mistake slip : {Mistake::two_arrivals, Mistake::same_parity, Mistake::late_wait})
      fault(slip).value("phase").names("arrivals_test.cpp:");
    fault(Mistake::overwritten).value("overwritten").names("arrivals_test.cpp:");
  });
}
#endif

}  // namespace
}  // namespace orrery
