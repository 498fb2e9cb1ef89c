// Counter-based random numbers: Philox4x32-10 maps (rng key, index) to 128 bits without state. So a
// number does not depend on earlier draws, and CPU, GPU and any number of threads agree.
//   Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"
//
// An rng key is derived along the path to its use:
// RandomKey{seed, 0}.derive("train").derive("blocks.3.dropout").derive(number of the micro-batch).
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "engine/math/scalar.h"
#include "engine/types/dtype.h"
#include "engine/types/host_device.h"

namespace orrery {

namespace detail {

// Ten rounds; counter and result are four 32-bit words, the key is two.
HOST_DEVICE inline Values<uint32_t, 4> philox(Values<uint32_t, 4> counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0], product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;  // the golden ratio
    key1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return counter;
}
HOST_DEVICE inline uint64_t join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

// Returns the upper 64 bits of the product.
HOST_DEVICE inline uint64_t multiply_high(uint64_t a, uint64_t b) {
  constexpr uint64_t low = 0xffffffffu;
  const uint64_t cross0 = (a >> 32) * (b & low) + ((a & low) * (b & low) >> 32);
  const uint64_t cross1 = (a & low) * (b >> 32) + (cross0 & low);
  return (a >> 32) * (b >> 32) + (cross0 >> 32) + (cross1 >> 32);
}

}  // namespace detail

// An rng key. Keys of different streams never share a counter.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;

  // Returns the rng key of a component, such as a step or a module. Components of one key have
  // streams that differ for all practical purposes (64 mixed bits).
  template <std::integral Integer>
  HOST_DEVICE RandomKey derive(Integer component) const {
    return derived(static_cast<uint64_t>(component), 0x9E3779B97F4A7C15u);
  }
  RandomKey derive(std::string_view component) const {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : component) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return derived(hash, 0xD1B54A32D192ED03u);  // another tag, so that a name never equals a number
  }
  HOST_DEVICE Values<uint32_t, 4> bits(uint64_t index) const {  // 128 random bits; `index` is the counter
    return detail::philox({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}},
                          static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  }
  friend bool operator==(const RandomKey&, const RandomKey&) = default;

 private:
  // `tag` separates these bits from the random numbers that are drawn.
  HOST_DEVICE RandomKey derived(uint64_t component, uint64_t tag) const {
    const Values<uint32_t, 4> mixed = RandomKey{seed ^ tag, stream}.bits(component);
    return {seed, detail::join(mixed[0], mixed[1])};
  }
};

// An rng key whose last component, the micro-batch number, is read from device memory by the
// kernel: a captured CUDA graph can be replayed with new numbers. A kernel calls load() once.
struct DeviceRandomKey {
  RandomKey rng = {};
  // On the device that draws; unchanged until backward, which draws the same numbers; may be null.
  const int32_t* micro_batch = nullptr;

  DeviceRandomKey() = default;
  DeviceRandomKey(RandomKey base, const int32_t* pointer = nullptr) : rng(base), micro_batch(pointer) {}

  template <class Component>
  DeviceRandomKey derive(const Component& component) const {
    return {rng.derive(component), micro_batch};
  }
  HOST_DEVICE RandomKey load() const { return micro_batch ? rng.derive(*micro_batch) : rng; }
  friend bool operator==(const DeviceRandomKey&, const DeviceRandomKey&) = default;
};

// Returns a number in [0, 1); all multiples of 2^-24 (float) or 2^-53 (double) are equally likely.
template <class T = double>
HOST_DEVICE inline T uniform(RandomKey rng, uint64_t index) {
  const Values<uint32_t, 4> bits = rng.bits(index);
  if constexpr (sizeof(T) == 4) {
    return static_cast<T>(bits[0] >> 8) * T(0x1p-24);
  } else {
    return static_cast<T>(detail::join(bits[0], bits[1]) >> 11) * T(0x1p-53);
  }
}

// Samples N(0, 1) by Box-Muller in double: sqrt(-2 log u) cos(2 pi v). The largest value is 8.6.
template <class T = double>
HOST_DEVICE inline T normal(RandomKey rng, uint64_t index) {
  const Values<uint32_t, 4> bits = rng.bits(index);
  const double u = static_cast<double>((detail::join(bits[0], bits[1]) >> 11) + 1) * 0x1p-53;  // in (0, 1]
  const double v = static_cast<double>(detail::join(bits[2], bits[3]) >> 11) * 0x1p-53;
  return static_cast<T>(scalar::sqrt(-2 * scalar::log(u)) * scalar::cos(6.28318530717958647693 * v));
}

// Returns an integer in [0, n) for n >= 1. The bias is below n / 2^64.
HOST_DEVICE inline uint64_t below(RandomKey rng, uint64_t index, uint64_t n) {
  const Values<uint32_t, 4> bits = rng.bits(index);
  return detail::multiply_high(detail::join(bits[0], bits[1]), n);
}

}  // namespace orrery
