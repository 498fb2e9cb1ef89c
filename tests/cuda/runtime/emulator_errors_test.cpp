// Faults in kernels and host code that fail on a GPU but may stay hidden in a first run: the
// emulation must find each. More faults, and correct code: emulation_test.cpp.
#include <doctest/doctest.h>

#include "engine/loops/loops.h"

#if defined(EMULATE_CUDA)

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cuda/matmul/tile_copies.cuh"
#include "cuda/runtime/launch.cuh"
#include "engine/tensor/staging.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/bank_conflicts.h"
#include "tests/support/sectors.h"

namespace orrery {
namespace {

__global__ void nothing_kernel() {}

// ---- all lanes of a warp at one instruction

constexpr uint32_t ones = 0x3f803f80;  // two bf16 values

__global__ void multiply_kernel(float* out, int divergent, int last) {
  if (static_cast<int>(threadIdx.x) > last) return;
  float d[4] = {};
  const uint32_t a[4] = {ones, ones, ones, ones}, b[2] = {ones, ones};
  if (divergent && threadIdx.x < 16)
    cuda::mma_m16n8k16(d, a, b);
  else
    cuda::mma_m16n8k16(d, a, b);
  out[threadIdx.x] = d[0];
}
struct Rows {
  alignas(16) uint16_t row[32][8];
};
__global__ void load_kernel(uint32_t* out, int divergent) {
  Rows& shared = cuda::shared_memory<Rows>();
  for (uint16_t& element : shared.row[threadIdx.x]) element = static_cast<uint16_t>(threadIdx.x);
  __syncwarp();
  uint32_t x[4];
  if (divergent && threadIdx.x < 16)
    cuda::load_matrices<false>(x, shared.row[threadIdx.x]);
  else
    cuda::load_matrices<false>(x, shared.row[threadIdx.x]);
  out[threadIdx.x] = x[0];
}

TEST_CASE("faults: lanes of a warp call mma or ldmatrix at two code locations, or some lanes do not call it") {
  DeviceArray<float> out(Device::cuda, 32);
  const auto multiply = [&](int divergent, int last) {
    return [=, &out] { cuda::launch({"multiply", 1, 32}, multiply_kernel, out.data(), divergent, last); };
  };
  DeviceArray<uint32_t> words(Device::cuda, 32);
  const auto load = [&](int divergent) {
    return [=, &words] { cuda::launch({"load", 1, 32, sizeof(Rows)}, load_kernel, words.data(), divergent); };
  };
  multiply(0, 31)();
  CHECK(out.read()[7] == 16);
  load(0)();
  const std::string here = "emulator_errors_test.cpp:";
  in_every_order([&] {
    expect_fault(multiply(1, 31)).names("mma").value("two places").names(here).names(here);
    expect_fault(load(1)).names("ldmatrix").value("two places").names(here).names(here);
    expect_fault(multiply(0, 30)).names("mma").offers("32 lanes").names(here);
  });
}

// ---- products of warp groups

struct Operands {
  alignas(1024) unsigned char a[64 * 128];
  alignas(1024) unsigned char b[8 * 128];
};
enum class GroupFault {
  none,
  not_begun,
  hidden,
  not_shown,
  not_met,
  divergent,
  other_operands,
  too_early,
  overwritten,
  changed_registers,
  left_behind
};
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
  if ((fault == GroupFault::hidden || fault == GroupFault::not_met) && thread == 5)
    cuda::store_chunk(shared.b, {ones, ones, ones, ones});
  if (fault == GroupFault::not_met) cuda::shared_written();
  const unsigned other = fault == GroupFault::other_operands && thread >= 64 ? 1024 : 0;
  const auto a = cuda::SharedOperand::at(cuda::shared_address(shared.a) + other, 64 * 128);
  const auto b = cuda::SharedOperand::at(cuda::shared_address(shared.b), 64 * 128);
  float d[1][4] = {};
  uint32_t registers[4] = {ones, ones, ones, ones};
  if (fault != GroupFault::not_begun) cuda::group_products_begin();
  if (fault == GroupFault::divergent && thread < 64)
    cuda::group_product<false, false>(d, a, b);
  else if (fault == GroupFault::changed_registers)
    cuda::group_product<false>(d, registers, b);
  else
    cuda::group_product<false, false>(d, a, b);
  cuda::group_products_commit();
  if (fault == GroupFault::left_behind) return;
  if (fault == GroupFault::overwritten) std::memset(shared.a + thread * 64, 0, 64);
  if (thread == 77) registers[2] = 0;
  if (fault == GroupFault::too_early) out[thread] = d[0][0];
  cuda::group_products_wait<0>();
  if (fault != GroupFault::too_early) out[thread] = d[0][0];
}
TEST_CASE("faults: products of warp groups diverge, are not waited for, or read operands that are not written yet") {
  DeviceArray<uint32_t> words(Device::cuda, std::vector<uint32_t>(4, ones));
  DeviceArray<float> out(Device::cuda, 128);
  const auto run = [&](GroupFault fault) {
    return [=, &words, &out] {
      cuda::launch({"group", 1, 128, sizeof(Operands)}, group_kernel, words.input(), out.data(), fault);
    };
  };
  in_every_order([&] {
    run(GroupFault::none)();
    CHECK(out.read()[70] == 16);
    expect_fault(run(GroupFault::not_begun)).names("warp group").offers("group_products_begin()");
    expect_fault(run(GroupFault::hidden)).names("warp group").value("wrote").offers("shared_written()");
    expect_fault(run(GroupFault::not_met)).names("warp group").value("wrote").value("barrier");
    expect_fault(run(GroupFault::not_shown)).names("warp group").value("copies").offers("shared_written()");
    expect_fault(run(GroupFault::divergent)).names("warp group").value("two places").names("emulator_errors_test.cpp:");
    expect_fault(run(GroupFault::other_operands)).names("warp group").value("threads").value("different operands");
    expect_fault(run(GroupFault::left_behind)).names("warp group").value("kernel").value("products");
    run(GroupFault::too_early)();
    CHECK(std::isnan(out.read()[70]));
    for (const GroupFault fault : {GroupFault::overwritten, GroupFault::changed_registers})
      expect_fault(run(fault)).names("warp group").value("operand").value("start").value("written");
  });
}

// ---- limits of a launch

__global__ void __launch_bounds__(64) bounded_kernel() {}
template <class T>
__global__ void __launch_bounds__(512, sizeof(T) > 4 ? 1 : 2) template_kernel(T) {}

TEST_CASE("faults: more threads than the launch bounds or, without them, than 255 registers per thread allow") {
  const auto launch = [](const auto& kernel, unsigned threads, const auto&... arguments) {
    cuda::launch({"bounded", 1, threads}, kernel, arguments...);
  };
  launch(bounded_kernel, 64);
  launch(template_kernel<float>, 512, 1.f);
  launch(template_kernel<double>, 512, 1.0);
  launch(nothing_kernel, 256);
#if defined(__x86_64__) && !defined(__clang__)
  const auto check_refused = [&](const auto& kernel, unsigned threads, const auto&... arguments) {
    const auto refused = [&] { launch(kernel, threads, arguments...); };
    expect_gpu_error(refused).names("bounded").value("cudaErrorLaunchOutOfResources").value(threads);
  };
  check_refused(bounded_kernel, 65);
  check_refused(template_kernel<float>, 513, 1.f);
  check_refused(template_kernel<double>, 513, 1.0);
  check_refused(nothing_kernel, 257);
#endif
}

template <int Bytes>
struct Large {
  char bytes[Bytes];
};
template <int Bytes>
__global__ void large_kernel(Large<Bytes>, float*) {}

TEST_CASE("faults: kernel parameters larger than 4 KB") {
  cuda::launch({"large", 1, 1}, large_kernel<4088>, Large<4088>{}, static_cast<float*>(nullptr));
  const auto too_large = [] {
    cuda::launch({"large", 1, 1}, large_kernel<4089>, Large<4089>{}, static_cast<float*>(nullptr));
  };
  expect_fault(too_large).names("launch").value(4104).names("parameters").offers(4096);
}

TEST_CASE("faults: more shared memory than the architecture allows per block") {
  for (const auto& [architecture, max_kb] : {std::pair(86, 99), {89, 99}, {120, 99}, {80, 163}, {90, 227}}) {
    const int captured = architecture;  // clang 14 captures no structured binding
    CAPTURE(captured);
    cuda_on_cpu::options.architecture = architecture;
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    CHECK(properties.major * 10 + properties.minor == architecture);
    const size_t bytes = static_cast<size_t>(max_kb) << 10, more = bytes + (1 << 10);
    CHECK(properties.sharedMemPerBlockOptin >= bytes);
    CHECK(properties.sharedMemPerBlockOptin < more);
    CHECK_NOTHROW(cuda::launch({"nothing", 1, 1, bytes}, nothing_kernel));
    expect_gpu_error([&] { cuda::launch({"nothing", 1, 1, more}, nothing_kernel); }).names("nothing").value(more);
    cuda_on_cpu::options = {};
  }
}

// ---- the host while copies are in flight

TEST_CASE("faults: the host waits for one copy and reads another") {
  const cuda::Workspace device(16);
  cuda::zero(device.data(), 16);
  cuda::Pinned first(16), second(16);
  first.fetch(device.data(), 16);
  second.fetch(device.data(), 16);
  const auto& early = *static_cast<const int32_t*>(first.data());
  const auto& late = *static_cast<const int32_t*>(second.data());
  first.wait();
  CHECK(early == 0);
  CHECK(late != 0);  // the fault: no wait for this copy
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
  expect_fault([&] { pinned.wait(); }).names("pinned memory").value("host").value("copy from");
  pinned.fetch(device.data(), 4000);
  numbers[0] = 7;
  expect_fault([&] { cuda::synchronize(); }).names("pinned memory").value("host").value("copy to");
  pinned.fetch(device.data(), 4000);
  pinned.wait();
  CHECK(numbers[999] == 999);  // the value that was sent
  numbers[0] = 7;              // nothing is in flight
  pinned.send(device.data(), 4000);
  pinned.wait();
}

// ---- memory

__global__ void fill_kernel(float* out, int n) {
  for (int i = 0; i < n; ++i) out[i] = 1;
}
TEST_CASE("faults: freed memory is used by a launch or by a CUDA graph") {
  for (const int n : {100, 100000}) {
    CAPTURE(n);
    float* data = static_cast<float*>(cuda::allocate(n * 4));
    void* const behind = cuda::allocate(16);
    const auto fill = [&] { cuda::launch({"fill", 1, 1}, fill_kernel, data, n); };
    const Graph graph(fill);
    CHECK_NOTHROW(graph.replay());
    cuda::free(data);
    if (!address_sanitizer) {  // it would end the program
      expect_gpu_error(fill).names("fill").value("cudaErrorIllegalAddress");
      expect_gpu_error([&] { graph.replay(); }).names("replay").value("cudaErrorIllegalAddress");
    }
    data = static_cast<float*>(cuda::allocate(n * 4));
    CHECK_NOTHROW(fill());
    cuda::free(data);
    cuda::free(behind);
  }
}
TEST_CASE("faults: memory is freed before the work that uses it has finished") {
  void* const data = cuda::allocate(16);
  CHECK(cudaMemsetAsync(data, 0, 16, cuda::stream()) == cudaSuccess);
  CHECK(cudaFree(data) == cudaErrorIllegalAddress);
  cuda::free(data);  // waits for the stream
}

struct alignas(16) Tile {
  uint16_t element[32 * 64];
};
// Copies rows of 16 bytes, `pitch` elements apart, to shared memory and reads them by ldmatrix.
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
TEST_CASE("faults: bank conflicts of rows in shared memory are counted") {
  DeviceArray<uint32_t> out(Device::cuda, 32);
  DeviceArray<uint16_t> in(Device::cuda, 8);
  const bool before = std::exchange(cuda_on_cpu::counts_bank_traffic, true);
  const auto times = [&](int pitch) {
    cuda::launch({"tile", 3, 32, sizeof(Tile)}, tile_kernel, out.data(), in.input(), pitch);
    const cuda_on_cpu::BankTraffic t = cuda_on_cpu::latest_bank_traffic;
    CHECK(t.min_loads == 4);  // eight lanes at a time
    CHECK(t.min_copies == 4);
    CHECK(t.loads == t.copies);
    return t.loads;
  };
  CHECK(times(8) == 4);    // adjacent
  CHECK(times(40) == 4);   // 5 r mod 8 are eight groups of banks
  CHECK(times(16) == 8);   // every second group
  CHECK(times(64) == 32);  // one group for all
  cuda_on_cpu::counts_bank_traffic = before;
}

// Lane l copies 16 bytes from element l * stride + first on; lanes from `last` on copy nothing.
__global__ void gather_kernel(const uint16_t* in, int stride, int first, int last) {
  const int lane = static_cast<int>(threadIdx.x);
  uint16_t* const to = cuda::shared_memory<Tile>().element + lane * 8;
  cuda::cp_async<16>(to, in + lane * stride + first, lane < last ? 16 : 0);
  cuda::cp_async_commit();
  cuda::cp_async_wait<0>();
}
TEST_CASE("faults: scattered copies of a warp in device memory are counted") {
  DeviceArray<uint16_t> in(Device::cuda, 33 * 64);
  const bool before = std::exchange(cuda_on_cpu::counts_bank_traffic, true);
  const auto touched = [&](int stride, int first, int last, uint64_t minimum) {
    cuda::launch({"gather", 3, 32, sizeof(Tile)}, gather_kernel, in.input(), stride, first, last);
    CHECK(cuda_on_cpu::latest_sector_traffic.minimum == minimum);
    return cuda_on_cpu::latest_sector_traffic.touched;
  };
  CHECK(touched(8, 0, 32, 16) == 16);   // adjacent, in 16 sectors of 32 bytes
  CHECK(touched(8, 8, 32, 16) == 17);   // adjacent, from the middle of a sector on
  CHECK(touched(16, 0, 32, 16) == 32);  // half of each sector is unused
  CHECK(touched(64, 0, 32, 16) == 32);
  CHECK(touched(0, 0, 32, 1) == 1);  // all lanes read the same 16 bytes
  CHECK(touched(16, 0, 6, 3) == 6);  // lanes that fill with zeros read nothing
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
    cuda::launch({"overflow", 3, 2, sizeof(Arrays)}, overflow_kernel, first, second);
  };
  write(7, 0);
  if (!address_sanitizer) {  // it would end the program
    expect_fault([&] { write(8, 0); }).names("shared memory").value("two arrays").value("byte 32");
    expect_fault([&] { write(0, -1); }).names("shared memory").value("two arrays").value("byte");
    expect_fault([&] { write(0, 8); }).names("shared memory").value("two arrays").value("byte");
  }
  write(0, 7);
}

struct Indices {
  int32_t index[32];
};
// Counts the indices; -1 stands for none.
__global__ void count_kernel(int32_t* count, const int32_t* given, int set) {
  int32_t& index = cuda::shared_memory<Indices>().index[threadIdx.x];
  if (set) index = -1;
  const int of_shared = index != -1, of_device = given[threadIdx.x] != -1, zero = !index || !given[threadIdx.x];
  count[threadIdx.x] = of_shared + of_device * 10 + zero * 100;
}
TEST_CASE("faults: uninitialized integers are neither 0 nor -1") {
  auto* const given = static_cast<int32_t*>(cuda::allocate(32 * 4));
  DeviceArray<int32_t> count(Device::cuda, 32);
  const auto counted = [&](int set) {
    cuda::launch({"count", 1, 32, sizeof(Indices)}, count_kernel, count.data(), given, set);
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
TEST_CASE("faults: results depend on the rounding mode of tensor cores") {
  DeviceArray<float> out(Device::cuda, 32);
  const auto sum = [&](bool truncating, float start, float a, float b) {
    cuda_on_cpu::options.truncating = truncating;
    cuda::launch({"sum", 1, 32}, sum_kernel, out.data(), start, a, b);
    cuda_on_cpu::options = {};
    return out.read()[0];  // sum of four products of a and b: lanes 0 to 3 hold the row
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
