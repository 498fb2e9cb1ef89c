// Rows that are preloaded into registers, row.preload, and moved in packs, row.map. The inputs are
// whole numbers, as in loops_test.cpp.
#include "engine/loops/loops.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

template <class T>
struct Holds {  // rewrites a row in place from its preloaded copy
  Out<T> x;
  Out<T> tops;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.preload(In<T>{x.pointer + r * row.n});
    const Out<T> out = x.at(r * row.n);
    const auto top = row.max([](auto a) { return 3 * a; }, in);
    const auto total = row.sum([](auto a) { return a; }, in), index_sum = row.sum([](int i) { return in_place(i); });
    row.map(out, [&](auto a) { return a * top + total - index_sum; }, in);
    row.once([&] { tops[r] = top; });
  }
  HOST_DEVICE static Arithmetic<T> in_place(int i) { return static_cast<Arithmetic<T>>(i % 3); }
};
template <class T>
Numbers preloads_of(Device device, int64_t count, int n) {
  DeviceArray<T> x(device, whole_numbers<T>(count * n, 5)), tops(device, count);
  rows(device, count, n, Holds<T>{{x.data()}, {tops.data()}});
  Numbers all = x.read();
  const Numbers more = tops.read();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
template <class T>
void check_preloaded_rows() {
  for (const int n : {1, 5, 16, 17, 32, 100, 1024, 1025, 4095, 4096, 4097, 9001}) {
    CAPTURE(n);
    const Numbers expected = preloads_of<T>(Device::cpu, 5, n);
    in_every_order([&] { CHECK(preloads_of<T>(Device::cuda, 5, n) == expected); });
  }
}
template <class T>
struct Overwrites {  // sums a row that was preloaded before it was cleared
  Out<T> x, y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.preload(In<T>{x.pointer + r * row.n});
    const Out<T> out = x.at(r * row.n);
    row.each([&](int i) { out[i] = 0; });
    const auto total = row.sum([](auto a) { return a; }, in);
    row.once([&] { y[r] = total; });
  }
};
TEST_CASE("rows on a GPU: preloaded rows give results bit-identical to the CPU's") {
  if (no_gpu()) return;
  check_preloaded_rows<float>();
  check_preloaded_rows<double>();
  check_preloaded_rows<bf16>();
}

TEST_CASE("rows on a GPU: preloaded rows are in registers only, up to 4096 elements") {
  if (no_gpu()) return;
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
struct Maps {  // maps x in place, and x with another row
  Out<T> x, y;
  In<T> z;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> mine = x.at(r * row.n);
    const In<T> in = {mine.pointer};
    row.map(
        y.at(r * row.n), [](auto a, auto b) { return a + 2 * b; }, in, z.at(r * row.n));
    const auto first = in[0];  // not overwritten yet
    row.map(mine, [&](auto a) { return a - first; }, in);
    row.once([&] { mine[row.n - 1] = first; });
  }
};
template <class T>
Numbers maps_of(Device device, int n, int64_t before_x, int64_t before_y) {
  constexpr int64_t count = 5, margin = 8;
  DeviceArray<T> x(device, whole_numbers<T>(count * n + margin, 1)), y(device, whole_numbers<T>(count * n + margin, 2)),
      z(device, whole_numbers<T>(count * n + margin, 3));
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
      for (const int64_t before_y : {int64_t{0}, before_x}) {  // equal or different offsets
        INFO("n = ", n, ", x begins at ", before_x, ", y at ", before_y);
        const Numbers expected = maps_of<T>(Device::cpu, n, before_x, before_y);
        in_every_order([&] { CHECK(maps_of<T>(Device::cuda, n, before_x, before_y) == expected); });
      }
}
TEST_CASE("rows on a GPU: a map gives the CPU's numbers for every alignment of its rows") {
  if (no_gpu()) return;
  check_maps<float>();
  check_maps<double>();
  check_maps<bf16>();
}

template <class T>
struct Copies {  // copies a row, and stores the results of exponentials
  const T* x;
  T* y;
  Out<double> of_row;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const T* const in = x + r * row.n;
    row.copy(y + r * row.n, in);
    const auto top_and_total = row.exponentials(In<T>{in});
    row.once([&] { of_row[2 * r] = top_and_total[0], of_row[2 * r + 1] = top_and_total[1]; });
  }
};
template <class T>
void check_copies(double tolerance) {
  constexpr int64_t count = 3;
  for (const int n : {1, 16, 100, 256, 1024, 1025, 5000, 9008})
    for (const int off : {0, 1}) {
      INFO("n = ", n, " by ", off);
      std::vector<T> numbers = whole_numbers<T>(count * n + off, 4);
      if (n > 1) numbers[static_cast<size_t>(off)] = T(-INFINITY);  // masked
      Numbers copied[2], sums[2];
      for (const Device device : {Device::cpu, Device::cuda}) {
        DeviceArray<T> x(device, numbers), y(device, count * n + off);
        DeviceArray<double> of_row(device, 2 * count);
        rows(device, count, n, Copies<T>{x.data() + off, y.data() + off, {of_row.data()}});
        copied[device == Device::cuda] = y.read(), sums[device == Device::cuda] = of_row.read();
      }
      CHECK(std::equal(copied[0].begin() + off, copied[0].end(), copied[1].begin() + off));
      for (size_t i = 0; i < sums[0].size(); ++i) CHECK(sums[1][i] == doctest::Approx(sums[0][i]).epsilon(tolerance));
    }
}
TEST_CASE("rows on a GPU: copies equal the CPU's, sums of exponentials have the accuracy of their dtype") {
  if (no_gpu()) return;
  check_copies<float>(1e-6);
  check_copies<double>(1e-14);
  check_copies<bf16>(1e-4);
}

}  // namespace
}  // namespace orrery
