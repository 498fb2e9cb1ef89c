// Maps over bf16 work in chunks: every value is widened and rounded like bf16, at all lengths.
#include "engine/loops/bf16_chunks.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "engine/loops/loops.h"

using namespace orrery;

namespace {

struct Same {
  template <class A>
  HOST_DEVICE A operator()(A x) const {
    return x;
  }
};
struct SumAndDifference {
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A x, A y) const {
    return {{x + y, x - y}};
  }
};

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

// The rounding of a chunk may depend on all its values: test each among like values and among ones.
std::vector<float> numbers_to_round(bool alone) {
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 0x10000; upper += alone ? 0x55 : 1)
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(float_of(upper << 16 | lower));
      if (alone) x.insert(x.end(), 40, 1.f);
    }
  return x;
}

}  // namespace

TEST_CASE("bf16 chunks: every number is widened exactly") {
  std::vector<bf16> x(0x10000);
  for (size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<uint16_t>(i);
  std::vector<float> y(x.size());
  map(Device::cpu, static_cast<int64_t>(x.size()), Same(), y.data(), x.data());
  int64_t wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) wrong += bits_of(y[i]) != static_cast<uint32_t>(i) << 16;
  CHECK(wrong == 0);
}

TEST_CASE("bf16 chunks: every kind of number is rounded as bf16 rounds, also subnormal numbers and NaN") {
  for (const bool alone : {false, true}) {
    const std::vector<float> x = numbers_to_round(alone);
    std::vector<bf16> y(x.size());
    map(Device::cpu, static_cast<int64_t>(x.size()), Same(), y.data(), x.data());
    int64_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const bf16 expected(x[i]);
      // The payload of a NaN depends on the processor.
      wrong += x[i] == x[i] ? y[i].bits != expected.bits : static_cast<float>(y[i]) == static_cast<float>(y[i]);
    }
    CAPTURE(alone);
    CHECK(wrong == 0);
  }
}

TEST_CASE("bf16 chunks: two outputs of any length, written within their bounds, also in place") {
  for (const int64_t n : {0, 1, 31, 32, 33, 63, 64, 65, 100}) {
    CAPTURE(n);
    const auto size = static_cast<size_t>(n) + 1;
    std::vector<bf16> x(size), y(size), sum(size, bf16(-7.f)), difference(size, bf16(-7.f));
    for (size_t i = 0; i < size; ++i) x[i] = bf16(static_cast<float>(i)), y[i] = bf16(static_cast<float>(3 * i % 50));
    const std::vector<bf16> x_before = x, y_before = y;
    map(Device::cpu, n, SumAndDifference(), Outputs<bf16, 2>{{sum.data(), difference.data()}}, x.data(), y.data());
    map(Device::cpu, n, SumAndDifference(), Outputs<bf16, 2>{{x.data(), y.data()}}, x.data(), y.data());
    for (size_t i = 0; i < size - 1; ++i) {
      const float a = static_cast<float>(x_before[i]), b = static_cast<float>(y_before[i]);
      CHECK(sum[i].bits == bf16(a + b).bits);
      CHECK(difference[i].bits == bf16(a - b).bits);
      CHECK(x[i].bits == sum[i].bits);
      CHECK(y[i].bits == difference[i].bits);
    }
    CHECK(static_cast<float>(sum[size - 1]) == -7);
    CHECK(static_cast<float>(difference[size - 1]) == -7);
    CHECK(x[size - 1].bits == x_before[size - 1].bits);
  }
}
