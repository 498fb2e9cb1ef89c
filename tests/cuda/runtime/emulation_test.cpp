// The emulation itself: it must do what a GPU does, and find faults that fail on a GPU.
#include <doctest/doctest.h>

#include "engine/loops/loops.h"

#if defined(EMULATE_CUDA)

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <string>

#include "cuda/matmul/tensor_core.cuh"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

using cuda_on_cpu::Order;

// Returns the exit status of a process that calls f.
template <class F>
int status_of_process(const F& f) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would exit instead
    std::signal(SIGBUS, SIG_DFL);
    close(STDERR_FILENO);
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}
bool killed_by_fault(int status) {
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

// ---- the machine

// Results are written as result[what * 32 + lane].
__global__ void exchange_kernel(double* result) {
  const int lane = static_cast<int>(threadIdx.x);
  int at = lane;
  const auto put = [&](double value) { result[at] = value, at += 32; };
  put(__shfl_sync(~0u, lane * 1.5, 3));
  put(__shfl_sync(~0u, lane, 2, 8));
  put(__shfl_xor_sync(~0u, static_cast<float>(lane), 5));
  put(__shfl_down_sync(~0u, int64_t{lane}, 4));
  put(__shfl_down_sync(~0u, lane, 4, 16));
  put(__ballot_sync(~0u, lane % 3 == 0));
  if (lane < 8) put(__shfl_xor_sync(0xffu, lane, 1));  // the other lanes do not participate
}
TEST_CASE("shuffles and votes follow their definitions") {
  DeviceArray<double> result(Device::cuda, 7 * 32);
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    cuda_on_cpu::options.order = order;
    cuda::launch({"exchange", 1, 32}, exchange_kernel, result.data());
    const std::vector<double> got = result.read();
    for (size_t lane = 0; lane < 32; ++lane) {
      CHECK(got[lane] == 4.5);
      CHECK(got[32 + lane] == static_cast<double>(lane / 8 * 8 + 2));
      CHECK(got[64 + lane] == static_cast<double>(lane ^ 5));
      CHECK(got[96 + lane] == static_cast<double>(lane + 4 < 32 ? lane + 4 : lane));
      CHECK(got[128 + lane] == static_cast<double>(lane % 16 + 4 < 16 ? lane + 4 : lane));
      CHECK(got[160 + lane] == 0x49249249);
      if (lane < 8) CHECK(got[192 + lane] == static_cast<double>(lane ^ 1));
    }
  }
  cuda_on_cpu::options.order = Order::forward;
}

__attribute__((no_sanitize("thread")))  // an intended race that shows the order
__global__ void
order_kernel(int32_t* order, int32_t* next) {
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  order[(*next)++] = static_cast<int32_t>(block * blockDim.x * blockDim.y * blockDim.z + thread);
}
TEST_CASE("threads run forward, in reverse and shuffled; a seed repeats its order") {
  cuda_on_cpu::options.workers = 1;
  const auto order_of = [](Order order, uint32_t seed) {
    cuda_on_cpu::options.order = order;
    cuda_on_cpu::options.seed = seed;
    DeviceArray<int32_t> thread_order(Device::cuda, 2 * 2 * 3 * 4 * 3 * 2), next(Device::cuda, 1);
    cuda::launch({"place", dim3(2, 2, 3), dim3(4, 3, 2)}, order_kernel, thread_order.data(), next.data());
    return thread_order.read();
  };
  std::vector<double> ascending(288);
  std::iota(ascending.begin(), ascending.end(), 0.0);
  CHECK(order_of(Order::forward, 1) == ascending);
  CHECK(order_of(Order::reverse, 1) == std::vector<double>(ascending.rbegin(), ascending.rend()));
  std::vector<double> shuffled = order_of(Order::random, 1);
  CHECK(shuffled == order_of(Order::random, 1));
  CHECK(shuffled != order_of(Order::random, 2));
  CHECK(shuffled != ascending);
  std::sort(shuffled.begin(), shuffled.end());
  CHECK(shuffled == ascending);
  cuda_on_cpu::options = {};
}

__global__ void early_kernel(int32_t* count) {
  if (threadIdx.x % 2 == 1) return;  // no barrier waits for them
  __syncthreads();
  __syncwarp();
  if (threadIdx.x == 0) count[blockIdx.x] = 1;
}
TEST_CASE("barriers do not wait for threads that have left the kernel") {
  DeviceArray<int32_t> count(Device::cuda, 3);
  cuda::launch({"early", 3, 100}, early_kernel, count.data());
  CHECK(count.read() == std::vector<double>(3, 1));
}

constexpr double unset = static_cast<int32_t>(0xffffffcdu);  // cuda_on_cpu::never_set

struct Landing {
  alignas(16) int32_t word[12];
};
// out: the twelve words when two groups are started, when one has arrived, and when both have.
__global__ void copy_kernel(int32_t* out, const int32_t* in) {
  Landing& shared = cuda::shared_memory<Landing>();
  for (int32_t& word : shared.word) word = 0;
  const auto put = [&] {
    for (const int32_t word : shared.word) *out++ = word;
  };
  cuda::cp_async<16>(&shared.word[0], in, 12);
  cuda::cp_async<8>(&shared.word[4], in + 4, 8);
  cuda::cp_async_commit();
  cuda::cp_async<4>(&shared.word[6], in + 6, 4);
  cuda::cp_async<4>(&shared.word[7], nullptr, 0);
  cuda::cp_async_commit();
  cuda::cp_async_commit();  // an empty group counts as one
  put();
  cuda::cp_async_wait<2>();
  put();
  cuda::cp_async_wait<0>();
  put();
}
TEST_CASE("asynchronous copies to shared memory arrive at the wait for their group, not earlier") {
  DeviceArray<int32_t> out(Device::cuda, 36), in(Device::cuda, std::vector<int32_t>{11, 12, 13, 14, 15, 16, 17, 18});
  cuda::launch({"copy", 1, 1, sizeof(Landing)}, copy_kernel, out.data(), in.input());
  CHECK(out.read() == std::vector<double>{unset, unset, unset, unset, unset, unset, unset, unset, 0, 0, 0, 0,  //
                                          11,    12,    13,    0,     15,    16,    unset, unset, 0, 0, 0, 0,  //
                                          11,    12,    13,    0,     15,    16,    17,    0,     0, 0, 0, 0});
  cuda_on_cpu::options.lax_waits = true;
  cuda::launch({"copy", 1, 1, sizeof(Landing)}, copy_kernel, out.data(), in.input());
  cuda_on_cpu::options.lax_waits = false;
  const std::vector<double> lax = out.read();
  CHECK(lax[12] == unset);                  // the wait that should leave two groups leaves three
  CHECK((lax[24] == 11 && lax[30] == 17));  // and the wait for all groups leaves the empty one
}

// ---- faults

__global__ void bad_copy_kernel(const char* in, int to_offset, int offset, int valid) {
  cuda::cp_async<16>(reinterpret_cast<char*>(&cuda::shared_memory<Landing>()) + to_offset, in + offset, valid);
}
TEST_CASE("copies to shared memory that a GPU does not support are errors") {
  void* const in = cuda::allocate(64);
  const auto copy = [&](int to_offset, int offset, int valid) {
    cuda::launch({"copy", 1, 1, sizeof(Landing)}, bad_copy_kernel, static_cast<const char*>(in), to_offset, offset,
                 valid);
  };
  copy(32, 16, 16);
  const std::string where = "emulation_test.cpp:";
  expect_fault([&] { copy(8, 0, 16); }).names("copy").value("address").offers("multiple of 16").names(where);
  expect_fault([&] { copy(0, 4, 16); }).names("copy").value("address").offers("multiple of 16").names(where);
  expect_fault([&] { copy(0, 0, 17); }).names("copy").value("17 bytes").offers(16).names(where);
  for (const int outside : {48, -16})
    expect_fault([&] { copy(outside, 0, 16); }).names("copy").value("destination").value("outside").names(where);
  cuda::free(in);
}

struct Words {
  uint32_t word[8];
};
__global__ void unwritten_kernel(int32_t* words) {
  uint32_t& word = cuda::shared_memory<Words>().word[threadIdx.x];
  words[blockIdx.x * 8 + threadIdx.x] = static_cast<int32_t>(word);
  word = 0;  // the next block must not read it
}
__global__ void beyond_kernel(int at) { cuda::shared_memory<Words>().word[at] = 1; }

TEST_CASE("shared memory is undefined at the start of a block, and writes beyond its end are errors") {
  DeviceArray<int32_t> words(Device::cuda, 5 * 8);
  cuda::launch({"unwritten", 5, 8, sizeof(Words)}, unwritten_kernel, words.data());
  CHECK(words.read() == std::vector<double>(5 * 8, unset));
  const auto with_less = [&] { cuda::launch({"unwritten", 1, 8, 16}, unwritten_kernel, words.data()); };
  expect_fault(with_less).names("shared memory").value(32).offers(16);
  cuda::launch({"beyond", 1, 1, sizeof(Words)}, beyond_kernel, 7);
  const auto write_beyond = [] { cuda::launch({"beyond", 1, 1, sizeof(Words)}, beyond_kernel, 8); };
  if (address_sanitizer)
    CHECK(status_of_process(write_beyond) != 0);
  else
    expect_fault(write_beyond).names("shared memory").value("beyond").offers("32 bytes");
}

__global__ void apart_kernel() {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void stuck_kernel() {
  if (threadIdx.x < 16)
    __syncwarp();
  else
    __syncthreads();
}
__global__ void outsider_kernel() { __syncwarp(1); }
__global__ void nothing_kernel() {}

TEST_CASE("a deadlock of threads is an error, not a hang") {
  expect_fault([] { cuda::launch({"apart", 1, 32}, apart_kernel); }).names("__syncthreads").value("two places");
  expect_fault([] { cuda::launch({"stuck", 1, 32}, stuck_kernel); }).names("deadlock").value("32 threads");
  expect_fault([] { cuda::launch({"outsider", 1, 32}, outsider_kernel); }).names("lane").value("mask");
  cuda::launch({"nothing", 9, 64}, nothing_kernel);  // the abandoned fibers can run again
}

__global__ void write_kernel(float* out, const float* in, int at) { out[at] = in ? in[at] : 1; }

TEST_CASE("a write outside a block of device memory is an illegal address") {
  float* const out = static_cast<float*>(cuda::allocate(40));
  const float* const in = static_cast<float*>(cuda::allocate(40));
  for (const float* const from : {static_cast<const float*>(nullptr), in})  // a copy from guard to guard is found
    for (const int at : {-1, 10, 15}) {
      const auto write = [&] { cuda::launch({"write", 1, 1}, write_kernel, out, from, at); };
      CAPTURE(at);
      if (address_sanitizer)
        CHECK(status_of_process(write) != 0);
      else
        expect_gpu_error(write)
            .names("write")
            .value("cudaErrorIllegalAddress")
            .names("cuda/runtime/emulation_test.cpp:");
    }
  cuda::launch({"write", 1, 1}, write_kernel, out, in, 9);
  cuda::free(out);
  cuda::free(const_cast<float*>(in));
}

TEST_CASE("the host cannot access device memory except by copies") {
  DeviceArray<float> x(Device::cuda, whole_numbers<float>(100, 1));
  CHECK(killed_by_fault(status_of_process([&] { *const_cast<volatile float*>(x.data()) = 1; })));
  CHECK(killed_by_fault(status_of_process([&] { static_cast<void>(*const_cast<volatile float*>(x.data())); })));
  cuda::launch({"nothing", 1, 1}, nothing_kernel);
  CHECK(killed_by_fault(status_of_process([&] { static_cast<void>(*const_cast<volatile float*>(x.data())); })));
  CHECK(status_of_process([&] { x.read(); }) == 0);
}

TEST_CASE("copies reject swapped host and device pointers, and ranges that leave their block") {
  float host[8] = {};
  void* const data = cuda::allocate(32);
  const std::string invalid = "cudaErrorInvalidValue";
  expect_gpu_error([&] { cuda::copy(host, true, host, false, 32); }).names("copy").value(invalid).names("runtime.cu:");
  expect_gpu_error([&] { cuda::copy(data, false, host, false, 32); })
      .names("copy")
      .value(invalid)
      .offers("--device=cpu");
  expect_gpu_error([&] { cuda::copy(data, true, host, false, 33); }).names("copy").value(invalid);
  expect_gpu_error([&] { cuda::zero(host, 32); }).names("zero").value(invalid);
  cuda::copy(host, false, data, true, 32);
  CHECK(std::all_of(host, host + 8, [](float x) { return x != x; }));  // fresh memory is NaN
  cuda::free(data);
  expect_gpu_error([&] { cuda::free(data); }).names("free").value(invalid);
}

TEST_CASE("device memory is limited, and freed blocks are reused") {
  cuda_on_cpu::options.memory = 1 << 20;
  release_cached(Device::cuda);
  std::vector<void*> blocks;
  while (void* const block = cuda::allocate(100000)) blocks.push_back(block);
  CHECK(blocks.size() <= 10);
  REQUIRE(blocks.size() > 2);
  cuda::free(blocks[1]);
  blocks[1] = cuda::allocate(90000);
  CHECK(blocks[1] != nullptr);
  CHECK(blocks[1] < blocks[2]);
  for (void* const block : blocks) cuda::free(block);
  cuda_on_cpu::options = {};
}

}  // namespace
}  // namespace orrery

#endif
