// Rows that are held in registers, row.hold, and moved in packs, row.map.  The inputs are whole numbers, as in
// loops_test.cpp.
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

template <class T>
struct Maps {  // in place of x, and from x and another row
  Out<T> x, y;
  In<T> z;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> mine = x.at(r * row.n);
    const In<T> in = {mine.pointer};
    row.map(y.at(r * row.n), [](auto a, auto b) { return a + 2 * b; }, in, z.at(r * row.n));
    const auto first = in[0];  // nobody has overwritten it yet
    row.map(mine, [&](auto a) { return a - first; }, in);
    row.once([&] { mine[row.n - 1] = first; });
  }
};
template <class T>
Numbers maps_of(Device device, int n, int64_t before_x, int64_t before_y) {
  constexpr int64_t count = 5, room = 8;
  DeviceArray<T> x(device, whole_numbers<T>(count * n + room, 1)), y(device, whole_numbers<T>(count * n + room, 2)),
      z(device, whole_numbers<T>(count * n + room, 3));
  rows(device, count, n, Maps<T>{{x.data() + before_x}, {y.data() + before_y}, {z.data() + before_x}});
  Numbers all = x.read();
  const Numbers more = y.read();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
template <class T>
void check_maps() {
  for (const int n : {1, 7, 8, 15, 16, 17, 40, 257, 1024, 1031, 2500})
    for (const int64_t before_x : {0, 1, 5})
      for (const int64_t before_y : {int64_t{0}, before_x}) {  // together or apart
        INFO("n = ", n, ", x begins at ", before_x, ", y at ", before_y);
        const Numbers expected = maps_of<T>(Device::cpu, n, before_x, before_y);
        in_every_order([&] { CHECK(maps_of<T>(Device::cuda, n, before_x, before_y) == expected); });
      }
}
TEST_CASE("rows on a card: a map gives the CPU's numbers wherever its rows begin") {
  if (no_card()) return;
  check_maps<float>();
  check_maps<double>();
  check_maps<bf16>();
}

}  // namespace
}  // namespace orrery
