// Rows that are held in registers: row.hold.  The inputs are whole numbers, as in loops_test.cpp.
#include "engine/loops/loops.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

template <class T>
struct Holds {  // a row in place of itself, from what is held
  Out<T> x;
  Out<T> tops;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.hold(In<T>{x.pointer + r * row.n});
    const Out<T> out = x.at(r * row.n);
    const auto top = row.max([&](auto i) { return in[i] * static_cast<Arithmetic<T>>(i % 7); });
    const auto total = row.sum([&](auto i) { return in[i]; }), places = row.sum([&](int i) { return in_place(i); });
    row.each([&](auto i) { out[i] = in[i] * top + total - places; });
    row.once([&] { tops[r] = top; });
  }
  HOST_DEVICE static Arithmetic<T> in_place(int i) { return static_cast<Arithmetic<T>>(i % 3); }
};
template <class T>
Numbers holds_of(Device device, int64_t count, int n) {
  DeviceArray<T> x(device, whole_numbers<T>(count * n, 5)), tops(device, count);
  rows(device, count, n, Holds<T>{{x.data()}, {tops.data()}});
  Numbers all = x.read();
  const Numbers more = tops.read();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
template <class T>
void check_held_rows() {
  for (const int n : {1, 5, 16, 17, 32, 100, 1024, 1025, 4095, 4096, 4097, 9001}) {
    CAPTURE(n);
    const Numbers expected = holds_of<T>(Device::cpu, 5, n);
    in_every_order([&] { CHECK(holds_of<T>(Device::cuda, 5, n) == expected); });
  }
}
template <class T>
struct Overwrites {  // the sum of a row that was held before it was cleared
  Out<T> x, y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.hold(In<T>{x.pointer + r * row.n});
    const Out<T> out = x.at(r * row.n);
    row.each([&](int i) { out[i] = 0; });
    const auto total = row.sum([&](auto i) { return in[i]; });
    row.once([&] { y[r] = total; });
  }
};
TEST_CASE("rows on a card: what is held gives the CPU's numbers, to the bit") {
  if (no_card()) return;
  check_held_rows<float>();
  check_held_rows<double>();
  check_held_rows<bf16>();
}

TEST_CASE("rows on a card: what is held stands in registers, up to 4096 elements, and only there") {
  if (no_card()) return;
  for (const int n : {3, 16, 17, 1024, 1025, 4096, 4097, 5000}) {
    constexpr int count = 3;
    DeviceArray<float> x(Device::cuda, std::vector<float>(static_cast<size_t>(count * n), 1)),
        sums(Device::cuda, count);
    rows(Device::cuda, count, n, Overwrites<float>{{x.data()}, {sums.data()}});
    CAPTURE(n);
    CHECK(sums.read() == Numbers(count, std::min(n, 4096)));
  }
}

}  // namespace
}  // namespace orrery
