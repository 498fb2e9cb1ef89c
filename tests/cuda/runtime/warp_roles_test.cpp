// Named barriers, the elected lane, and registers that warp groups give and take, on a GPU or its
// emulation, and the faults that the emulation finds.
#include "engine/loops/loops.h"  // so that nvcc compiles this file

#include <doctest/doctest.h>

#include <algorithm>

#include "cuda/matmul/warp_group.cuh"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

struct Numbers {
  float number[32];
};
enum class Mistake { none, no_arrive, twice, other_count, odd_count, number_0 };
// The first warp passes its numbers to the second in turns: barrier 1 says that they are written, 2
// that they are read.
__global__ void __launch_bounds__(64) turns_kernel(float* out, int turns, Mistake mistake) {
  Numbers& shared = cuda::shared_memory<Numbers>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto is = [&](Mistake one) { return mistake == one; };
  float sum = 0;
  cuda::wait_for_earlier();
  for (int turn = 0; turn < turns; ++turn) {
    if (threadIdx.x < 32) {
      if (turn > 0) cuda::named_sync(2, is(Mistake::other_count) ? 96 : 64);
      shared.number[lane] = static_cast<float>(lane * turn);
      if (!is(Mistake::no_arrive) || turn < 2)
        cuda::named_arrive(is(Mistake::number_0) ? 0 : 1, is(Mistake::odd_count) ? 63 : 64);
      if (is(Mistake::twice)) cuda::named_arrive(1, 64);
    } else {
      cuda::named_sync(1, 64);
      sum += shared.number[31 - lane];
      if (turn + 1 < turns) cuda::named_arrive(2, 64);
    }
  }
  if (threadIdx.x >= 32) out[lane] = sum;
}
void take_turns(Mistake mistake) {
  DeviceArray<float> out(Device::cuda, 32);
  cuda::launch({"turns", 1, 64, sizeof(Numbers)}, turns_kernel, out.data(), 4, mistake);
  const std::vector<double> got = out.read();
  for (size_t lane = 0; lane < 32; ++lane) CHECK(got[lane] == static_cast<double>((31 - lane) * 6));
}
TEST_CASE("named barriers: two warps take turns") {
  if (no_gpu() || !cuda::warp_groups()) return;
  in_every_order([] { take_turns(Mistake::none); });
}

__global__ void elect_kernel(int32_t* out) {
  cuda::wait_for_earlier();
  out[threadIdx.x] = cuda::elected();
  out[threadIdx.x] += cuda::elected() * 2;
}
TEST_CASE("one lane of each warp is elected, the same each time") {
  if (no_gpu() || !cuda::warp_groups()) return;
  in_every_order([] {
    DeviceArray<int32_t> out(Device::cuda, 64);
    cuda::launch({"elect", 1, 64}, elect_kernel, out.data());
    const std::vector<double> got = out.read();
    for (const auto warp : {got.begin(), got.begin() + 32}) {
      CHECK(std::count(warp, warp + 32, 3) == 1);
      CHECK(std::count(warp, warp + 32, 0) == 31);
    }
  });
}

// Groups of 128 threads: 168 registers for each thread at first.
template <int Given, int Taken>
__global__ void __launch_bounds__(384, 1) registers_kernel(int32_t* out, int takers) {
  cuda::wait_for_earlier();
  if (threadIdx.x < 128)
    cuda::give_registers<Given>();
  else if (static_cast<int>(threadIdx.x) < 128 * (1 + takers))
    cuda::take_registers<Taken>();
  out[threadIdx.x] = static_cast<int32_t>(threadIdx.x);
}
template <int Given, int Taken>
void pass_registers(int takers = 2) {
  DeviceArray<int32_t> out(Device::cuda, 384);
  cuda::launch({"registers", 1, 384}, registers_kernel<Given, Taken>, out.data(), takers);
  CHECK(out.read()[383] == 383);
}
TEST_CASE("registers: two warp groups take what another gives") {
  if (no_gpu() || !cuda::warp_groups()) return;
  in_every_order([] {
    pass_registers<24, 240>();
    pass_registers<40, 232>();
  });
}

#if defined(EMULATE_CUDA)
TEST_CASE("named barriers: a missing arrival is a deadlock, and other numbers of threads are errors") {
  const auto fault = [](Mistake mistake) { return expect_fault([=] { take_turns(mistake); }); };
  in_every_order([&] {
    fault(Mistake::no_arrive).names("deadlock").value("32 at").names("warp_roles_test.cpp:");
    fault(Mistake::twice).names("named barrier 1").value("twice").names("warp_roles_test.cpp:");
    fault(Mistake::other_count).names("named barrier 2").value("threads").names("warp_roles_test.cpp:");
    fault(Mistake::odd_count).names("named barrier 1").value("63 threads").offers(32).names("warp_roles_test.cpp:");
    fault(Mistake::number_0).names("named barrier 0").offers("1 to 15").names("warp_roles_test.cpp:");
  });
}

__global__ void __launch_bounds__(128) divergent_kernel() {
  if (threadIdx.x < 64)
    cuda::give_registers<40>();
  else
    cuda::give_registers<40>();
}
TEST_CASE("registers: more than a multiprocessor has, changes in the wrong direction and divergent ones are errors") {
  const std::string here = "warp_roles_test.cpp:";
  expect_fault([] { pass_registers<48, 240>(); }).names("registers").value(67584).offers(65536).names(here);
  expect_fault([] { pass_registers<24, 160>(); }).names("registers").value("takes 160").value(168).names(here);
  expect_fault([] { pass_registers<176, 176>(0); }).names("registers").value("gives 176").value(168).names(here);
  const auto diverge = [] { cuda::launch({"divergent", 1, 128}, divergent_kernel); };
  expect_fault(diverge).names("warp group").value("two places").names(here).names(here);
}
#endif

}  // namespace
}  // namespace orrery
