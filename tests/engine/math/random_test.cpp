#include "engine/math/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

using namespace orrery;

namespace {

RandomKey key_of(uint32_t counter2, uint32_t counter3, uint32_t key0, uint32_t key1) {
  return {uint64_t{key1} << 32 | key0, uint64_t{counter3} << 32 | counter2};
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the numbers that its authors publish") {  // Random123, tests/kat_vectors
  struct Known {
    std::array<uint32_t, 4> counter;
    std::array<uint32_t, 2> key;
    std::array<uint32_t, 4> result;
  };
  const std::vector<Known> all = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Known& known : all) {
    const RandomKey key = key_of(known.counter[2], known.counter[3], known.key[0], known.key[1]);
    const Values<uint32_t, 4> bits = key.bits(uint64_t{known.counter[1]} << 32 | known.counter[0]);
    for (int i = 0; i < 4; ++i) CHECK(bits[i] == known.result[static_cast<size_t>(i)]);
  }
}

TEST_CASE("a random number depends on key and index alone") {
  const RandomKey key = RandomKey{7, 0}.derive(3).derive("block.2.dropout");
  CHECK(uniform(key, 5) == uniform(RandomKey{7, 0}.derive(3).derive("block.2.dropout"), 5));
  CHECK(uniform(key, 5) != uniform(key, 6));
  CHECK(uniform(key, 5) != uniform(RandomKey{8, 0}.derive(3).derive("block.2.dropout"), 5));
}

TEST_CASE("derived rng keys have separate streams") {
  const RandomKey key{1, 0};
  std::set<uint64_t> streams = {key.stream};
  for (int i = 0; i < 1000; ++i) {
    streams.insert(key.derive(i).stream);
    streams.insert(key.derive("part " + std::to_string(i)).stream);
    streams.insert(key.derive(0).derive(i).stream);
  }
  CHECK(streams.size() == 3001);
  CHECK(key.derive(1).derive(2) != key.derive(2).derive(1));
  CHECK(key.derive("1") != key.derive(1));
  CHECK(key.derive("").stream != key.stream);
  CHECK(key.derive(int64_t{-1}) == key.derive(-1));
  CHECK(key.derive("weight").seed == key.seed);
  // A drawn number does not reveal a derived stream.
  CHECK(detail::join(key.bits(9)[0], key.bits(9)[1]) != key.derive(9).stream);
}

// Expected values from a few lines of Python that follow the papers on Philox and FNV-1a.
TEST_CASE("random numbers are equal in every version, because checkpoints resume with them") {
  const RandomKey key = RandomKey{1234, 0}.derive("initialization").derive(17);
  CHECK(key.stream == 1568537150880420654u);
  CHECK(uniform(key, 0) == 0.0076123894461909147);
  CHECK(normal(key, 0) == doctest::Approx(0.2764286622524045).epsilon(1e-14));
  CHECK(uniform<float>(key, 1) == 0.790494442f);
  CHECK(below(key, 2, 1000) == 385);
}

TEST_CASE("uniform numbers fill [0, 1) evenly") {
  const RandomKey key{42, 1};
  constexpr int count = 200000, cells = 64;
  std::array<int, cells> in_cell{};
  double sum = 0, squares = 0, neighbours = 0, before = 0.5;
  for (int i = 0; i < count; ++i) {
    const double u = uniform(key, static_cast<uint64_t>(i));
    const float f = uniform<float>(key, static_cast<uint64_t>(i));
    if (!(u >= 0 && u < 1 && f >= 0 && f < 1)) FAIL("out of range: ", u, " or ", f);
    ++in_cell[static_cast<size_t>(u * cells)];
    sum += u, squares += u * u, neighbours += (u - 0.5) * (before - 0.5), before = u;
  }
  CHECK(sum / count == doctest::Approx(0.5).epsilon(0.005));
  CHECK(squares / count == doctest::Approx(1.0 / 3).epsilon(0.01));
  CHECK(std::fabs(neighbours / count) < 1e-3);
  double chi_square = 0;
  for (const int n : in_cell)
    chi_square += (n - count / double(cells)) * (n - count / double(cells)) / (count / double(cells));
  CHECK(chi_square < 120);  // 63 degrees of freedom: exceeded once in 100,000
  CHECK(chi_square > 25);
}

TEST_CASE("normal numbers have the moments and the tail of N(0, 1)") {
  const RandomKey key{42, 2};
  constexpr int count = 400000;
  double moment[5] = {};
  int beyond_two = 0;
  for (int i = 0; i < count; ++i) {
    const double z = normal(key, static_cast<uint64_t>(i));
    if (!(std::fabs(z) < 8.7)) FAIL("impossible: ", z);
    double power = 1;
    for (double& m : moment) m += power / count, power *= z;
    beyond_two += std::fabs(z) > 2;
  }
  CHECK(std::fabs(moment[1]) < 0.006);
  CHECK(moment[2] == doctest::Approx(1).epsilon(0.01));
  CHECK(std::fabs(moment[3]) < 0.03);
  CHECK(moment[4] == doctest::Approx(3).epsilon(0.02));
  CHECK(beyond_two / double(count) == doctest::Approx(0.0455).epsilon(0.03));
  CHECK(normal<float>(key, 3) == static_cast<float>(normal(key, 3)));
}

TEST_CASE("below(n) reaches every number below n equally often") {
  const RandomKey key{42, 3};
  constexpr int count = 60000;
  std::array<int, 6> faces{};
  for (int i = 0; i < count; ++i) ++faces[below(key, static_cast<uint64_t>(i), 6)];
  for (const int n : faces) CHECK(std::abs(n - count / 6) < 500);
  CHECK(below(key, 0, 1) == 0);
  constexpr uint64_t huge = 0xfedcba9876543210u;
  uint64_t largest = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    REQUIRE(below(key, i, huge) < huge);
    largest = std::max(largest, below(key, i, huge));
  }
  CHECK(largest > huge / 2);
}

TEST_CASE("the upper half of a product of 64-bit numbers is exact") {
  CHECK(detail::multiply_high(~uint64_t{0}, ~uint64_t{0}) == ~uint64_t{0} - 1);
  CHECK(detail::multiply_high(uint64_t{1} << 63, 2) == 1);
  CHECK(detail::multiply_high(0x123456789abcdef0u, 0xfedcba9876543210u) == 0x121fa00ad77d7422u);
  CHECK(detail::multiply_high(0xffffffffu, 0xffffffffu) == 0);
}
