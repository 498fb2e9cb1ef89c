// For tests of kernels: arrays on either device with guards around them, whole numbers, and what an error says.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/runtime/runtime.h"
#include "engine/tensor/storage.h"
#include "engine/types/dtype.h"
#include "tests/support/text.h"
#if defined(EMULATE_CUDA)
#include "tests/support/cuda_on_cpu.h"
#endif

namespace orrery {

using testing::contains;

// AddressSanitizer ends the program at faults that are otherwise errors; ThreadSanitizer fails it for any race.
#if defined(__has_feature)
inline constexpr bool address_sanitizer = __has_feature(address_sanitizer);
inline constexpr bool thread_sanitizer = __has_feature(thread_sanitizer);
#else
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
#endif

// ThreadSanitizer makes the emulation some forty times slower: under it a test that walks many cases takes one of `n`.
inline constexpr uint32_t one_of(uint32_t n) { return thread_sanitizer ? n : 1; }

// A CUDA build runs the same tests on a card; without one there is nothing to test.
inline bool no_card() {
  if (cuda::device_count() > 0) return false;
  MESSAGE("no GPU here: nothing was run");
  return true;
}

template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

// f() with the threads of a block in each order; on a card, once.
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

#if defined(EMULATE_CUDA)
// Whether right() is true in every order of the threads; what the emulation finds by itself is wrong too.
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
// right() reaches every barrier in the text of `path`, and is false in some order as soon as any one of them is
// removed.
template <class F>
void check_that_every_barrier_is_needed(const std::string& path, const F& right) {
  REQUIRE(right_in_every_order(right));
  int found = 0;
  for (const cuda_on_cpu::Site& site : cuda_on_cpu::barriers_reached([&] { right(); })) {
    const std::string file = site.file;
    if (file.size() < path.size() || file.compare(file.size() - path.size(), path.size(), path) != 0) continue;
    ++found;
    CAPTURE(site.line);
    cuda_on_cpu::options.dropped = site;
    CHECK(!right_in_every_order(right));
    cuda_on_cpu::options.dropped = {};
  }
  std::ifstream source(std::string(ORRERY_SOURCE_DIR) + "/" + path);
  int written = 0;
  for (std::string line; std::getline(source, line);)
    written += line.find("__syncthreads(") != line.npos || line.find("__syncwarp(") != line.npos;
  CHECK(written > 0);
  CHECK(found == written);
}
#endif

// Whole numbers in [-7, 7]: sums of them are exact in any order, products too.
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

  // Every element as a double; one NaN if a guard was overwritten, which equals nothing.
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
