// Faults as they stand in kernels and in the host's code around them, that a card punishes and a first run may hide:
// the emulation must find each.  More of them, and what is no fault: emulation_test.cpp.
#include <doctest/doctest.h>

#include "engine/loops/loops.h"

#if defined(EMULATE_CUDA)

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cuda/matmul/warp_group.cuh"
#include "cuda/runtime/launch.cuh"
#include "engine/tensor/staging.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/bank_conflicts.h"
#include "tests/support/sectors.h"

namespace orrery {
namespace {

__global__ void nothing_kernel() {}

// ---- all lanes of a warp at one instruction

constexpr uint32_t ones = 0x3f803f80;  // two of bf16

__global__ void multiply_kernel(float* out, int parted, int last) {
  if (static_cast<int>(threadIdx.x) > last) return;
  float d[4] = {};
  const uint32_t a[4] = {ones, ones, ones, ones}, b[2] = {ones, ones};
  if (parted && threadIdx.x < 16)
    cuda::mma_m16n8k16(d, a, b);
  else
    cuda::mma_m16n8k16(d, a, b);
  out[threadIdx.x] = d[0];
}
struct Rows {
  alignas(16) uint16_t row[32][8];
};
__global__ void load_kernel(uint32_t* out, int parted) {
  Rows& shared = cuda::shared_memory<Rows>();
  for (uint16_t& element : shared.row[threadIdx.x]) element = static_cast<uint16_t>(threadIdx.x);
  __syncwarp();
  uint32_t x[4];
  if (parted && threadIdx.x < 16)
    cuda::load_matrices<false>(x, shared.row[threadIdx.x]);
  else
    cuda::load_matrices<false>(x, shared.row[threadIdx.x]);
  out[threadIdx.x] = x[0];
}

TEST_CASE("faults: parts of a warp call mma or ldmatrix at two places, or some lanes do not call it at all") {
  DeviceArray<float> out(Device::cuda, 32);
  const auto multiply = [&](int parted, int last) {
    return error_of([&] { cuda::launch({"multiply", 1, 32}, multiply_kernel, out.data(), parted, last); });
  };
  DeviceArray<uint32_t> words(Device::cuda, 32);
  const auto load = [&](int parted) {
    return error_of([&] { cuda::launch({"load", 1, 32, sizeof(Rows)}, load_kernel, words.data(), parted); });
  };
  CHECK(multiply(0, 31) == "no error");
  CHECK(out.read()[7] == 16);
  CHECK(load(0) == "no error");
  in_every_order([&] {
    for (const std::string& message : {multiply(1, 31), load(1)}) {
      CHECK(contains(message, "parts of a warp call mma or ldmatrix at two places: "));
      CHECK(contains(message, " and "));
    }
    CHECK(contains(multiply(0, 30), "mma or ldmatrix without all 32 lanes of a warp, at "));
  });
}

// ---- products of warp groups

struct Operands {
  alignas(1024) unsigned char a[64 * 128];
  alignas(1024) unsigned char b[8 * 128];
};
enum class GroupFault { none, not_shown, parted, other_operands, too_early, overwritten, left_behind };
// d (64, 8) += a product of ones, 16 deep
__global__ void __launch_bounds__(128) group_kernel(const uint32_t* words, float* out, GroupFault fault) {
  Operands& shared = cuda::shared_memory<Operands>();
  const unsigned thread = threadIdx.x;
  const auto fill = [&] {
    for (unsigned chunk = thread; chunk < sizeof(Operands) / 16; chunk += 128)
      cuda::cp_async<16>(shared.a + 16 * chunk, words);
    cuda::cp_async_commit();
    cuda::cp_async_wait<0>();
  };
  fill();
  if (fault != GroupFault::not_shown) cuda::shared_written();
  __syncthreads();
  const unsigned other = fault == GroupFault::other_operands && thread >= 64 ? 1024 : 0;
  const auto a = cuda::SharedOperand::at(cuda::shared_address(shared.a) + other, 64 * 128);
  const auto b = cuda::SharedOperand::at(cuda::shared_address(shared.b), 64 * 128);
  float d[1][4] = {};
  if (fault == GroupFault::parted && thread < 64)
    cuda::group_product<false, false>(d, a, b);
  else
    cuda::group_product<false, false>(d, a, b);
  cuda::group_products_commit();
  if (fault == GroupFault::left_behind) return;
  if (fault == GroupFault::overwritten) std::memset(shared.a + thread * 64, 0, 64);
  if (fault == GroupFault::too_early) out[thread] = d[0][0];
  cuda::group_products_wait<0>();
  if (fault != GroupFault::too_early) out[thread] = d[0][0];
}
TEST_CASE("faults: products of warp groups that are not all at one place, not waited for, or read what is not there") {
  DeviceArray<uint32_t> words(Device::cuda, std::vector<uint32_t>(4, ones));
  DeviceArray<float> out(Device::cuda, 128);
  const auto run = [&](GroupFault fault) {
    return error_of([&] {
      cuda::launch({"group", 1, 128, sizeof(Operands)}, group_kernel, words.input(), out.data(), fault);
    });
  };
  in_every_order([&] {
    CHECK(run(GroupFault::none) == "no error");
    CHECK(out.read()[70] == 16);
    CHECK(contains(run(GroupFault::not_shown), "reads copies that no shared_written() has shown it before the"));
    CHECK(contains(run(GroupFault::parted), "parts of a warp group are at two places: "));
    CHECK(contains(run(GroupFault::other_operands), "product of a warp group: its threads name different operands"));
    CHECK(contains(run(GroupFault::left_behind), "a warp group leaves its kernel before its products are done"));
    CHECK(run(GroupFault::too_early) == "no error");
    CHECK(std::isnan(out.read()[70]));
    CHECK(contains(run(GroupFault::overwritten), "an operand was not there at its start, or was written to before"));
  });
}

// ---- what a launch may ask for

__global__ void __launch_bounds__(64) bounded_kernel() {}
template <class T>
__global__ void __launch_bounds__(512, sizeof(T) > 4 ? 1 : 2) template_kernel(T) {}

TEST_CASE("faults: more threads than the launch bounds of a kernel, or than 255 registers a thread allow without") {
  const auto refused = [](const auto& kernel, unsigned threads, const auto&... arguments) {
    const std::string message = error_of([&] { cuda::launch({"bounded", 1, threads}, kernel, arguments...); });
    CHECK((message == "no error" || contains(message, "bounded: cudaErrorLaunchOutOfResources")));
    return message != "no error";
  };
  CHECK(!refused(bounded_kernel, 64));
  CHECK(!refused(template_kernel<float>, 512, 1.f));
  CHECK(!refused(template_kernel<double>, 512, 1.0));
  CHECK(!refused(nothing_kernel, 256));
#if defined(__x86_64__) && !defined(__clang__)
  CHECK(refused(bounded_kernel, 65));
  CHECK(refused(template_kernel<float>, 513, 1.f));
  CHECK(refused(template_kernel<double>, 513, 1.0));
  CHECK(refused(nothing_kernel, 257));
#endif
}

template <int Bytes>
struct Large {
  char bytes[Bytes];
};
template <int Bytes>
__global__ void large_kernel(Large<Bytes>, float*) {}

TEST_CASE("faults: more than 4 KB of parameters") {
  cuda::launch({"large", 1, 1}, large_kernel<4088>, Large<4088>{}, static_cast<float*>(nullptr));
  CHECK(contains(error_of([] {
                   cuda::launch({"large", 1, 1}, large_kernel<4089>, Large<4089>{}, static_cast<float*>(nullptr));
                 }),
                 "launch: 4104 bytes of parameters; kernels of all cards take 4096"));
}

TEST_CASE("faults: more shared memory than a block has on the card that is there") {
  const auto refused = [](int architecture, size_t kilobytes) {
    cuda_on_cpu::options.architecture = architecture;
    const std::string message = error_of([&] { cuda::launch({"nothing", 1, 1, kilobytes << 10}, nothing_kernel); });
    cudaDeviceProp card;
    cudaGetDeviceProperties(&card, 0);
    CHECK(card.major * 10 + card.minor == architecture);
    CHECK((card.sharedMemPerBlockOptin < kilobytes << 10) == (message != "no error"));
    cuda_on_cpu::options = {};
    return message != "no error";
  };
  for (const int consumer : {86, 89, 120}) {
    CHECK(!refused(consumer, 99));
    CHECK(refused(consumer, 100));
  }
  CHECK(!refused(80, 163));
  CHECK(refused(80, 164));
  CHECK(!refused(90, 227));
  CHECK(refused(90, 228));
}

// ---- the host while copies are in flight

TEST_CASE("faults: a wait for another copy than the one that is read") {
  const cuda::Workspace device(16);
  cuda::zero(device.data(), 16);
  cuda::Pinned first(16), second(16);
  first.fetch(device.data(), 16);
  second.fetch(device.data(), 16);
  const auto& early = *static_cast<const int32_t*>(first.data());
  const auto& late = *static_cast<const int32_t*>(second.data());
  first.wait();
  CHECK(early == 0);
  CHECK(late != 0);  // the fault: it was not waited for
  second.wait();
  CHECK(late == 0);
}

TEST_CASE("faults: the host writes to pinned memory while a copy from it or to it is in flight") {
  const cuda::Workspace device(4000);
  cuda::zero(device.data(), 4000);
  cuda::Pinned pinned(4000);
  auto* const numbers = static_cast<int32_t*>(pinned.data());
  for (int i = 0; i < 1000; ++i) numbers[i] = i;
  pinned.send(device.data(), 4000);
  numbers[999] = 0;
  CHECK(error_of([&] { pinned.wait(); }) ==
        "pinned memory: the host wrote to it while a copy from it was in flight");
  pinned.fetch(device.data(), 4000);
  numbers[0] = 7;
  CHECK(error_of([&] { cuda::synchronize(); }) ==
        "pinned memory: the host wrote to it while a copy to it was in flight");
  pinned.fetch(device.data(), 4000);
  pinned.wait();
  CHECK(numbers[999] == 999);  // what was sent
  numbers[0] = 7;              // nothing is in flight
  pinned.send(device.data(), 4000);
  pinned.wait();
}

// ---- memory

__global__ void fill_kernel(float* out, int n) {
  for (int i = 0; i < n; ++i) out[i] = 1;
}
TEST_CASE("faults: memory is used that was freed, by a launch or by what was recorded") {
  for (const int n : {100, 100000}) {
    CAPTURE(n);
    float* data = static_cast<float*>(cuda::allocate(n * 4));
    void* const behind = cuda::allocate(16);
    const auto fill = [&] { cuda::launch({"fill", 1, 1}, fill_kernel, data, n); };
    const Graph graph(fill);
    CHECK(error_of([&] { graph.replay(); }) == "no error");
    cuda::free(data);
    if (!address_sanitizer) {  // which ends the program
      CHECK(contains(error_of(fill), "fill: cudaErrorIllegalAddress"));
      CHECK(contains(error_of([&] { graph.replay(); }), "replay: cudaErrorIllegalAddress"));
    }
    data = static_cast<float*>(cuda::allocate(n * 4));
    CHECK(error_of(fill) == "no error");
    cuda::free(data);
    cuda::free(behind);
  }
}
TEST_CASE("faults: memory is freed before the work that uses it was waited for") {
  void* const data = cuda::allocate(16);
  CHECK(cudaMemsetAsync(data, 0, 16, cuda::stream()) == cudaSuccess);
  CHECK(cudaFree(data) == cudaErrorIllegalAddress);
  cuda::free(data);  // waits
}

struct alignas(16) Tile {
  uint16_t element[32 * 64];
};
// Rows of 16 bytes, `pitch` elements apart, are copied to shared memory and read by ldmatrix.
__global__ void tile_kernel(uint32_t* out, const uint16_t* in, int pitch) {
  Tile& tile = cuda::shared_memory<Tile>();
  uint16_t* const row = tile.element + static_cast<int>(threadIdx.x) * pitch;
  cuda::cp_async<16>(row, in, 16);
  cuda::cp_async_commit();
  cuda::cp_async_wait<0>();
  __syncwarp();
  uint32_t x[4];
  cuda::load_matrices<false>(x, row);
  out[threadIdx.x] = x[0];
}
TEST_CASE("faults: rows of shared memory that lie in the same banks are counted") {
  DeviceArray<uint32_t> out(Device::cuda, 32);
  DeviceArray<uint16_t> in(Device::cuda, 8);
  const bool before = std::exchange(cuda_on_cpu::counts_bank_traffic, true);
  const auto times = [&](int pitch) {
    cuda::launch({"tile", 3, 32, sizeof(Tile)}, tile_kernel, out.data(), in.input(), pitch);
    const cuda_on_cpu::BankTraffic t = cuda_on_cpu::latest_bank_traffic;
    CHECK(t.least_loads == 4);  // eight lanes at a time
    CHECK(t.least_copies == 4);
    CHECK(t.loads == t.copies);
    return t.loads;
  };
  CHECK(times(8) == 4);    // side by side
  CHECK(times(40) == 4);   // 5 r mod 8 are eight groups of banks
  CHECK(times(16) == 8);   // every second group
  CHECK(times(64) == 32);  // one group for all
  cuda_on_cpu::counts_bank_traffic = before;
}

// Lane l copies 16 bytes from element l * stride + first on; from lane `last` on nothing.
__global__ void gather_kernel(const uint16_t* in, int stride, int first, int last) {
  const int lane = static_cast<int>(threadIdx.x);
  uint16_t* const to = cuda::shared_memory<Tile>().element + lane * 8;
  cuda::cp_async<16>(to, in + lane * stride + first, lane < last ? 16 : 0);
  cuda::cp_async_commit();
  cuda::cp_async_wait<0>();
}
TEST_CASE("faults: copies of a warp that lie apart in the device's memory are counted") {
  DeviceArray<uint16_t> in(Device::cuda, 33 * 64);
  const bool before = std::exchange(cuda_on_cpu::counts_bank_traffic, true);
  const auto touched = [&](int stride, int first, int last, uint64_t least) {
    cuda::launch({"gather", 3, 32, sizeof(Tile)}, gather_kernel, in.input(), stride, first, last);
    CHECK(cuda_on_cpu::latest_sector_traffic.least == least);
    return cuda_on_cpu::latest_sector_traffic.touched;
  };
  CHECK(touched(8, 0, 32, 16) == 16);   // side by side, in 16 sectors of 32 bytes
  CHECK(touched(8, 8, 32, 16) == 17);   // the same, from the middle of a sector on
  CHECK(touched(16, 0, 32, 16) == 32);  // half of each sector is not wanted
  CHECK(touched(64, 0, 32, 16) == 32);
  CHECK(touched(0, 0, 32, 1) == 1);     // all want the same
  CHECK(touched(16, 0, 6, 3) == 6);     // what fills with zeros reads nothing
  CHECK(touched(16, 0, 0, 0) == 0);
  cuda_on_cpu::counts_bank_traffic = before;
}

struct Arrays {
  float first[8];
  [[no_unique_address]] cuda::SharedGap<0> gap;
  float second[8];
  [[no_unique_address]] cuda::SharedGap<1> behind;
  float third[8];
  static constexpr auto gaps() { return std::tuple{&Arrays::gap, &Arrays::behind}; }
};
__global__ void overflow_kernel(int first, int second) {
  cuda::shared_memory<Arrays>().first[first] = 1;
  cuda::shared_memory<Arrays>().second[second] = 1;
}
TEST_CASE("faults: an array of shared memory overflows into the next") {
  const auto write = [](int first, int second) {
    return error_of([&] { cuda::launch({"overflow", 3, 2, sizeof(Arrays)}, overflow_kernel, first, second); });
  };
  CHECK(write(7, 0) == "no error");
  if (!address_sanitizer) {  // which ends the program
    CHECK(write(8, 0) == "shared memory: written between two arrays, from byte 32 on");
    CHECK(contains(write(0, -1), "shared memory: written between two arrays"));
    CHECK(contains(write(0, 8), "shared memory: written between two arrays"));
  }
  CHECK(write(0, 7) == "no error");
}

struct Places {
  int32_t place[32];
};
// How many of the places, which -1 stands for where there is none.
__global__ void count_kernel(int32_t* count, const int32_t* given, int set) {
  int32_t& place = cuda::shared_memory<Places>().place[threadIdx.x];
  if (set) place = -1;
  const int of_shared = place != -1, of_device = given[threadIdx.x] != -1, zero = !place || !given[threadIdx.x];
  count[threadIdx.x] = of_shared + of_device * 10 + zero * 100;
}
TEST_CASE("faults: integers that were never set pass neither for 0 nor for none") {
  auto* const given = static_cast<int32_t*>(cuda::allocate(32 * 4));
  DeviceArray<int32_t> count(Device::cuda, 32);
  const auto counted = [&](int set) {
    cuda::launch({"count", 1, 32, sizeof(Places)}, count_kernel, count.data(), given, set);
    return count.read()[31];
  };
  CHECK(counted(0) == 11);
  CHECK(counted(1) == 10);
  const std::vector<int32_t> none(32, -1);
  cuda::copy(given, true, none.data(), false, 32 * 4);
  CHECK(counted(1) == 0);
  cuda::free(given);
}

// ---- numbers

__global__ void sum_kernel(float* out, float sum, float a, float b) {
  const auto pair = [](float x) { return cuda::round_pair(x, 0); };
  float d[4] = {sum, sum, sum, sum};
  const uint32_t of_a[4] = {pair(a)}, of_b[2] = {pair(b)};
  cuda::mma_m16n8k16(d, of_a, of_b);
  out[threadIdx.x] = d[0];
}
TEST_CASE("faults: numbers that hang on how tensor cores round, which cards do not") {
  DeviceArray<float> out(Device::cuda, 32);
  const auto sum = [&](bool truncating, float start, float a, float b) {
    cuda_on_cpu::options.truncating = truncating;
    cuda::launch({"sum", 1, 32}, sum_kernel, out.data(), start, a, b);
    cuda_on_cpu::options = {};
    return out.read()[0];  // of four products of a and b: lanes 0 to 3 hold the row
  };
  const float small = std::ldexp(1.f, -12), last = std::ldexp(1.f, -23);
  CHECK(sum(false, 0, 3, 5) == 60);
  CHECK(sum(true, 0, 3, 5) == 60);
  CHECK(sum(true, -100, 3, 5) == -40);
  CHECK(sum(false, 1, small, 1.5f * small) == 1 + 4 * last);  // each 3/4 of the last bit, rounded to the nearest
  CHECK(sum(true, 1, small, 1.5f * small) == 1);
  CHECK(sum(true, -1, -small, 1.5f * small) == -1);
  const float denormal = std::ldexp(1.f, -130), large = std::ldexp(1.f, 20);
  CHECK(sum(false, 0, denormal, large) == std::ldexp(1., -108));
  CHECK(sum(true, 0, denormal, large) == 0);
  CHECK(sum(true, denormal, 0, 0) == 0);
  const double infinite = sum(true, 0, INFINITY, 1), undefined = sum(true, -INFINITY, INFINITY, 1);
  CHECK(infinite == INFINITY);
  CHECK(undefined != undefined);
}

}  // namespace
}  // namespace orrery

#endif
