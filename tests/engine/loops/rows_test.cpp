// Row loops on the CPU: sums of conditional terms, a common compiler bug, at lengths near the lanes.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "engine/loops/loops.h"

using namespace orrery;

namespace {

template <class T>
struct ConditionalSums {
  In<T> x, mask;
  double *sum, *count, *largest;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    using A = Arithmetic<T>;
    const In<T> v = x.at(r * row.n), m = mask.at(r * row.n);
    const A total = row.sum([&](int i) { return m[i] > 0 ? v[i] : A(0); });
    const A number = row.sum([&](int i) { return m[i] > 0 ? A(1) : A(0); });
    const A row_max = row.max([&](int i) { return m[i] > 0 ? v[i] : A(-1); });
    row.once([&] { sum[r] = total, count[r] = number, largest[r] = row_max; });
  }
};

template <class T>
void check_sums() {
  for (const int n : {1, 5, 15, 16, 17, 31, 32, 33, 64, 100, 257}) {
    constexpr int rows_of = 3;
    std::vector<T> x(static_cast<size_t>(rows_of * n)), mask(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = T(static_cast<float>(i % 7)), mask[i] = T(i % 3 == 0 ? 1.f : -1.f);
    std::vector<double> sum(rows_of), count(rows_of), largest(rows_of);
    rows(Device::cpu, rows_of, n,
         ConditionalSums<T>{{x.data()}, {mask.data()}, sum.data(), count.data(), largest.data()});
    for (int r = 0; r < rows_of; ++r) {
      double s = 0, c = 0, row_max = -1;
      for (int i = r * n; i < (r + 1) * n; ++i)
        if (i % 3 == 0) s += i % 7, c += 1, row_max = std::max<double>(row_max, i % 7);
      INFO("n = ", n, ", row ", r);
      CHECK(sum[static_cast<size_t>(r)] == s);  // integers: exact in any order
      CHECK(count[static_cast<size_t>(r)] == c);
      CHECK(largest[static_cast<size_t>(r)] == row_max);
    }
  }
}

}  // namespace

TEST_CASE("a row's sum of conditional terms is correct at every length, in every dtype") {
  check_sums<float>();
  check_sums<double>();
  check_sums<bf16>();
}
