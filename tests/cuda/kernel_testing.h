// Helpers for kernel tests: arrays with guards on either device, whole numbers, expected errors.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/runtime/runtime.h"
#include "engine/tensor/storage.h"
#include "engine/types/dtype.h"
#include "engine/types/machine_error.h"
#include "tests/support/message.h"
#include "tests/support/sanitizers.h"
#if defined(EMULATE_CUDA)
#include "tests/support/cuda_on_cpu.h"
#endif

namespace orrery {

using testing::expect_error;
using testing::Message;

// Expects an error of the CUDA runtime.
template <class F>
Message expect_gpu_error(const F& f) {
  return expect_error<MachineError>(f);
}

#if defined(EMULATE_CUDA)
// Expects an error that the emulation itself detects.
template <class F>
Message expect_fault(const F& f) {
  return expect_error<cuda_on_cpu::Fault>(f);
}
#endif

// AddressSanitizer ends the program at a fault, without an error; ThreadSanitizer fails on races.
// ThreadSanitizer slows the emulation about 40 times, so tests of many cases take one of `n`.
inline constexpr uint32_t one_of(uint32_t n) { return thread_sanitizer ? n : 1; }

// Returns true if a CUDA build finds no GPU and must skip its tests.
inline bool no_gpu() {
  if (cuda::device_count() > 0) return false;
  MESSAGE("no GPU here: nothing was run");
  return true;
}

// Calls f with the threads of a block in each order; on a GPU, once.
template <class F>
void in_every_order(const F& f) {
#if defined(EMULATE_CUDA)
  for (const auto order : {cuda_on_cpu::Order::forward, cuda_on_cpu::Order::reverse, cuda_on_cpu::Order::random}) {
    cuda_on_cpu::options.order = order;
    f();
  }
  cuda_on_cpu::options.order = cuda_on_cpu::Order::forward;
#else
  f();
#endif
}

// Calls f with copies of tiles that land late and early; on a GPU, once.
template <class F>
void at_every_landing(const F& f) {
#if defined(EMULATE_CUDA)
  struct Restore {
    ~Restore() { cuda_on_cpu::options.landing = cuda_on_cpu::Landing::late; }
  } restore;
  for (const auto landing : {cuda_on_cpu::Landing::early, cuda_on_cpu::Landing::late}) {
    cuda_on_cpu::options.landing = landing;
    f();
  }
#else
  f();
#endif
}

#if defined(EMULATE_CUDA)
// Returns true if right() is true in every thread order; faults of the emulation count as false.
template <class F>
bool right_in_every_order(const F& right) {
  bool all = true;
  in_every_order([&] {
    try {
      all = all && right();
    } catch (const std::runtime_error&) {
      all = false;
    }
  });
  return all;
}
// Returns true if right() is true at every landing, and in closed memory, which finds a missing wait for earlier
// kernels. That wait is then a barrier of the block, which would hide the need for others.
template <class F>
bool right_at_every_landing(const F& right) {
  struct Restore {
    ~Restore() { cuda_on_cpu::options.closed_memory = false; }
  } restore;
  bool all = true;
  at_every_landing([&] { all = all && right(); });
  cuda_on_cpu::options.closed_memory = true;
  return all && right();
}
// Barriers of every kernel, and those of kernels whose warps have different tasks, in their text.
inline const std::vector<std::string> block_barriers = {"__syncthreads(", "__syncwarp("};
inline const std::vector<std::string> all_barriers = {"__syncthreads(",
                                                      "__syncwarp(",
                                                      "named_sync(",
                                                      "named_arrive(",
                                                      ".arrive(",
                                                      ".expect(",
                                                      ".wait(",
                                                      "barriers_initialized(",
                                                      "shared_written(",
                                                      "wait_for_earlier(",
                                                      "allow_next(",
                                                      "tile_stores_commit(",
                                                      "tile_stores_wait<",
                                                      "group_products_begin(",
                                                      "group_products_commit(",
                                                      "group_products_wait<"};
// Checks that right() reaches every line of `path` with one of these barriers, and is false in some
// thread order if any one of them is removed.
template <class F>
void check_that_every_barrier_is_needed(const std::string& path, const F& right,
                                        const std::vector<std::string>& barriers = block_barriers) {
  REQUIRE(right_in_every_order(right));
  std::set<int> left;  // lines
  std::ifstream source(std::string(ORRERY_SOURCE_DIR) + "/" + path);
  int number = 1;
  for (std::string line; std::getline(source, line); ++number)
    if (std::any_of(barriers.begin(), barriers.end(), [&](const std::string& b) { return line.find(b) != line.npos; }))
      left.insert(number);
  CHECK(!left.empty());
  for (const cuda_on_cpu::Site& site : cuda_on_cpu::barriers_reached([&] { right(); })) {
    if (!std::string(site.file).ends_with(path) || !left.erase(site.line)) continue;
    CAPTURE(site.line);
    cuda_on_cpu::options.dropped = site;
    CHECK(!right_in_every_order(right));
    cuda_on_cpu::options.dropped = {};
  }
  for (const int line : left) FAIL_CHECK("not reached: ", path, ":", line);
}
#endif

// Returns whole numbers in [-7, 7]: their sums and products are exact in any order.
template <class T>
std::vector<T> whole_numbers(int64_t n, uint32_t seed) {
  std::vector<T> x(static_cast<size_t>(n));
  for (T& element : x) {
    seed = seed * 1664525u + 1013904223u;
    element = static_cast<T>(static_cast<float>(static_cast<int>(seed >> 24) % 15 - 7));
  }
  return x;
}

template <class T>
class DeviceArray {
 public:
  DeviceArray(Device device, const std::vector<T>& x) : count_(x.size()), buffer_(device, 2 * guard + bytes()) {
    std::vector<std::byte> all(static_cast<size_t>(buffer_.bytes()), guard_byte);
    std::copy_n(reinterpret_cast<const std::byte*>(x.data()), bytes(), all.data() + guard);
    copy_bytes(device, buffer_.data(), Device::cpu, all.data(), buffer_.bytes());
  }
  DeviceArray(Device device, int64_t n) : DeviceArray(device, std::vector<T>(static_cast<size_t>(n), T{})) {}

  T* data() { return reinterpret_cast<T*>(buffer_.data() + guard); }
  const T* input() { return data(); }

  // Returns every element as a double, or one NaN if a guard was overwritten; it equals nothing.
  std::vector<double> read() {
    std::vector<std::byte> all(static_cast<size_t>(buffer_.bytes()));
    copy_bytes(Device::cpu, all.data(), buffer_.device(), buffer_.data(), buffer_.bytes());
    for (int64_t i = 0; i < guard; ++i)
      if (all[static_cast<size_t>(i)] != guard_byte || all[all.size() - 1 - static_cast<size_t>(i)] != guard_byte)
        return {std::numeric_limits<double>::quiet_NaN()};
    const auto elements = reinterpret_cast<const T*>(all.data() + guard);
    std::vector<double> x(count_);
    for (size_t i = 0; i < count_; ++i) x[i] = static_cast<double>(static_cast<Arithmetic<T>>(elements[i]));
    return x;
  }

 private:
  static constexpr int64_t guard = 256;
  static constexpr std::byte guard_byte{0x5a};
  int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(T)); }

  size_t count_;
  Buffer buffer_;
};

}  // namespace orrery
