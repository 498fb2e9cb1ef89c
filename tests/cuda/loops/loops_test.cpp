// map, rows and reduce on a GPU, or its emulation, give the numbers of the CPU's loops. The inputs
// are whole numbers, so sums are exact in any order and all comparisons use ==.
#include "engine/loops/tensor_loops.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>

#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

Numbers join(std::initializer_list<Numbers> parts) {
  Numbers all;
  for (const Numbers& values : parts) all.insert(all.end(), values.begin(), values.end());
  return all;
}

// ---- map

struct Line {
  float a;
  template <class T>
  HOST_DEVICE T operator()(T x, T y) const {
    return T(a) * x + y;
  }
};
struct SumAndProduct {
  template <class T>
  HOST_DEVICE Values<T, 2> operator()(T x, T y) const {
    return {{x + y, x * y}};
  }
};
struct Where {  // three inputs of two types
  template <class T>
  HOST_DEVICE T operator()(int32_t choose, T x, T y) const {
    return choose > 0 ? x : y;
  }
};

template <class T>
Numbers map_line(Device device, int64_t n) {
  DeviceArray<T> x(device, whole_numbers<T>(n, 1)), y(device, whole_numbers<T>(n, 2)), z(device, n);
  map(device, n, Line{3}, z.data(), x.input(), y.input());
  map(device, n, Line{2}, x.data(), x.input(), z.input());  // in place
  return join({z.read(), x.read(), y.read()});
}
template <class T>
Numbers map_several(Device device, int64_t n) {
  DeviceArray<T> x(device, whole_numbers<T>(n, 1)), y(device, whole_numbers<T>(n, 2)), s(device, n), p(device, n);
  map(device, n, SumAndProduct{}, Outputs<T, 2>{{s.data(), p.data()}}, x.input(), y.input());
  return join({s.read(), p.read()});
}
// Maps arrays that begin `off` elements after a multiple of 16 bytes, each array in turn.
template <class T>
Numbers map_misaligned(Device device, int64_t n, int off) {
  Numbers all;
  for (int which = 0; which < 4; ++which) {
    DeviceArray<T> x(device, whole_numbers<T>(n + off, 1)), y(device, whole_numbers<T>(n + off, 2));
    DeviceArray<T> s(device, n + off), p(device, n + off);
    const auto from = [&](DeviceArray<T>& array, int i) { return array.data() + (i == which ? off : 0); };
    const T *const a = from(x, 0), *const b = from(y, 1);
    map(device, n, SumAndProduct{}, Outputs<T, 2>{{from(s, 2), from(p, 3)}}, a, b);
    all = join({all, s.read(), p.read()});
  }
  return all;
}
template <class T>
Numbers map_where(Device device, int64_t n) {
  DeviceArray<int32_t> choose(device, whole_numbers<int32_t>(n, 3));
  DeviceArray<T> x(device, whole_numbers<T>(n, 1)), y(device, whole_numbers<T>(n, 2)), z(device, n);
  map(device, n, Where{}, z.data(), choose.input(), x.input(), y.input());
  return z.read();
}

// A shape and its repetitions: bit a of repeated[k] set means that input k repeats along axis a.
struct Repeated {
  std::vector<int64_t> sizes;
  std::array<unsigned, 2> repeated;
};
const std::vector<Repeated>& repeated_shapes() {
  static const std::vector<Repeated> shapes = {
      {{}, {0, 0}},          {{1}, {0, 1}},          {{300}, {0, 1}},
      {{7, 33}, {0, 2}},     {{33, 7}, {2, 1}},      {{5, 0, 3}, {0, 0}},
      {{3, 40, 17}, {2, 5}}, {{4, 3, 2, 9}, {5, 2}}, {{2, 3, 2, 3, 2, 5}, {21, 42}},
      {{5, 64}, {0, 1}},     {{24, 5}, {0, 2}},      {{3, 5, 48}, {4, 2}},
      {{3, 6, 16}, {1, 6}}};
  return shapes;
}
Broadcast<2> broadcast_of(const Repeated& shape, int64_t (&counts)[2]) {
  Broadcast<2> plan;
  plan.rank = static_cast<int>(shape.sizes.size());
  counts[0] = counts[1] = 1;
  for (int a = plan.rank - 1; a >= 0; --a) {
    plan.size[a] = shape.sizes[static_cast<size_t>(a)];
    for (int k = 0; k < 2; ++k) {
      const bool repeats = shape.repeated[static_cast<size_t>(k)] >> a & 1u;
      plan.stride[k][a] = repeats ? 0 : counts[k];
      if (!repeats) counts[k] *= plan.size[a];
    }
  }
  return plan;
}
template <class T>
Numbers map_broadcast(Device device, const Repeated& shape) {
  int64_t counts[2];
  const Broadcast<2> plan = broadcast_of(shape, counts);
  DeviceArray<T> x(device, whole_numbers<T>(counts[0], 1)), y(device, whole_numbers<T>(counts[1], 2));
  DeviceArray<T> z(device, plan.numel()), s(device, plan.numel()), p(device, plan.numel());
  map(device, plan, Line{3}, z.data(), x.input(), y.input());
  map(device, plan, SumAndProduct{}, Outputs<T, 2>{{s.data(), p.data()}}, x.input(), y.input());
  return join({z.read(), s.read(), p.read()});
}

// ---- rows

template <class T>
struct Folds {  // several folds in sequence, then a loop that uses their results
  In<T> x;
  Out<T> y, tops;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> in = x.at(r * n);
    const Out<T> out = y.at(r * n);
    const auto total = row.sum([&](int i) { return in[i]; });
    const auto top = row.max([&](int i) { return in[i] * static_cast<Arithmetic<T>>(i % 7); });
    const auto squares = row.sum([&](int i) { return in[i] * in[i]; });
    const int largest_even = row.max([&](int i) { return i % 2 == 0 ? i % 100 : 0; });
    row.each([&](int i) { out[i] = in[i] * top + total - squares + static_cast<Arithmetic<T>>(largest_even); });
    row.once([&] { tops[r] += top; });
  }
};
template <class T>
struct Walks {  // reads and writes that are correct only if loops wait for each other
  Out<T> x, y;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const Out<T> in = x.at(r * n), out = y.at(r * n);
    const Arithmetic<T> before = in[n / 2];
    row.each([&](int i) { in[i] += before; });
    const Arithmetic<T> after = in[n / 2];
    row.each([&](int i) { out[i] = in[n - 1 - i] + after; });
    const auto total = row.sum([&](int i) { return out[i]; });
    row.each([&](int i) { out[i] += total; });
  }
};
template <class T>
struct Counts {  // sums of integers and of booleans
  In<T> x;
  Out<int32_t> y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> in = x.at(r * row.n);
    const int positive = row.sum([&](int i) { return in[i] > 0; });
    const int index_sum = row.sum([&](int i) { return in[i] > 0 ? i : 0; });
    row.once([&] { y[2 * r] = positive, y[2 * r + 1] = index_sum; });
  }
};
template <class T>
Numbers count_of(Device device, int64_t count, int n) {
  DeviceArray<T> x(device, whole_numbers<T>(count * n, 5));
  DeviceArray<int32_t> y(device, count * 2);
  rows(device, count, n, Counts<T>{{x.data()}, {y.data()}});
  return y.read();
}
template <class T>
Numbers rows_of(Device device, int64_t count, int n) {
  DeviceArray<T> x(device, whole_numbers<T>(count * n, 5)), y(device, count * n), z(device, count * n),
      tops(device, count);
  rows(device, count, n, Folds<T>{{x.data()}, {y.data()}, {tops.data()}, n});
  rows(device, count, n, Walks<T>{{x.data()}, {z.data()}, n});
  return join({x.read(), y.read(), z.read(), tops.read()});
}

template <class T>
struct Largest {
  In<T> x;
  Out<T> y;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const In<T> in = x.at(r * n);
    const auto held = row.preload(in);
    const auto top = row.max([&](int i) { return in[i]; }), of_preloaded = row.max([](auto x_i) { return x_i; }, held);
    row.each([&](int i) { y[r * n + i] = i % 2 == 0 ? top : of_preloaded; });
  }
};

// ---- reduce

template <class T>
struct Element {
  In<T> x;
  HOST_DEVICE Arithmetic<T> operator()(int64_t i, int64_t) const { return x[i]; }
};
template <class T>
struct ElementAndProduct {
  In<T> x, y;
  HOST_DEVICE Values<Arithmetic<T>, 2> operator()(int64_t i, int64_t row) const {
    return {{x[i], x[i] * y[i] + static_cast<Arithmetic<T>>(row % 3)}};
  }
};
struct Sizes {
  int64_t outer, n, inner;
};
struct TermsOfOperands {
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A x, A w, A number, int64_t r) const {
    return {{x * w, x + number + static_cast<A>(r % 3)}};
  }
};
// Reduces operands with their own pack access, `off` elements after a multiple of 16 bytes.
template <class T>
Numbers reduce_of_operands(Device device, Sizes s, int off) {
  using A = Arithmetic<T>;
  DeviceArray<T> x(device, whole_numbers<T>(s.n * s.inner + off, 7)), w(device, whole_numbers<T>(s.inner + off, 4));
  DeviceArray<A> numbers(device, whole_numbers<A>(s.n, 3)), first(device, s.inner), second(device, s.inner);
  const detail::RowAccess<T> row{x.data() + off};
  const detail::BroadcastAccess<T> whole{w.data() + off};
  const auto body = detail::body_of<detail::TermBody>(
      TermsOfOperands(), std::make_tuple(row, whole, detail::PerRowAccess<A>{numbers.data()}, detail::RowIndexAccess()),
      s.inner);
  reduce(device, 1, s.n, s.inner, body, Outputs<A, 2>{{first.data(), second.data()}});
  return join({first.read(), second.read()});
}
template <class T>
Numbers reduce_of(Device device, Sizes s) {
  const int64_t count = s.outer * s.n * s.inner, outputs = s.outer * s.inner;
  DeviceArray<T> x(device, whole_numbers<T>(count, 7)), y(device, whole_numbers<T>(count, 8));
  DeviceArray<T> one(device, outputs), first(device, outputs), second(device, outputs);
  reduce(device, s.outer, s.n, s.inner, Element<T>{{x.data()}}, one.data());
  reduce(device, s.outer, s.n, s.inner, ElementAndProduct<T>{{x.data()}, {y.data()}},
         Outputs<T, 2>{{first.data(), second.data()}});
  return join({one.read(), first.read(), second.read()});
}

// ---- all cases on a device

struct Case {
  std::string name;
  std::function<Numbers(Device)> run;
};
template <class T>
void add_cases(std::vector<Case>& cases) {
  const std::string type = std::string(" ") + name(dtype_of<T>) + " ";
  const auto add = [&](const std::string& what, std::function<Numbers(Device)> run) {
    cases.push_back({what, std::move(run)});
  };
  for (const int64_t n : {0, 1, 31, 256, 257, 5000}) {
    const std::string size = std::to_string(n);
    add("map" + type + size, [n](Device device) { return map_line<T>(device, n); });
    add("map to two" + type + size, [n](Device device) { return map_several<T>(device, n); });
    add("map of three" + type + size, [n](Device device) { return map_where<T>(device, n); });
    for (const int off : {1, 2, 4}) {
      const std::string by = " by " + std::to_string(off);
      add("map misaligned" + type + size + by, [=](Device device) { return map_misaligned<T>(device, n, off); });
    }
  }
  for (const Repeated& shape : repeated_shapes())
    add("broadcast" + type + std::to_string(shape.sizes.size()),
        [&shape](Device device) { return map_broadcast<T>(device, shape); });
  for (const int n : {0, 1, 7, 45, 2000})
    add("counts in rows of" + type + std::to_string(n), [=](Device device) { return count_of<T>(device, 3, n); });
  for (const int n : {1, 2, 5, 8, 13, 16, 17, 32, 33, 1024, 1025, 3001})
    for (const int64_t count : {0, 1, 19})
      add("rows" + type + std::to_string(count) + " of " + std::to_string(n),
          [=](Device device) { return rows_of<T>(device, count, n); });
  for (const Sizes s : {Sizes{1, 1, 1},
                        {0, 5, 3},
                        {3, 0, 5},
                        {3, 5, 0},
                        {7, 13, 1},
                        {300, 5, 1},
                        {37, 64, 1},
                        {5, 700, 1},
                        {2, 300, 3},
                        {2, 100, 33},
                        {1, 3, 700},
                        {1, 40000, 1},
                        {3, 9000, 2},
                        {1, 3000, 100}})
    add("reduce" + type + std::to_string(s.outer) + " " + std::to_string(s.n) + " " + std::to_string(s.inner),
        [s](Device device) { return reduce_of<T>(device, s); });
}
template <class T>
void add_cases_of_operands(std::vector<Case>& cases) {
  const std::string type = std::string(" ") + name(dtype_of<T>) + " ";
  for (const Sizes s : {Sizes{1, 63, 64}, {1, 64, 64}, {1, 3000, 96}, {1, 100, 1000}, {1, 40, 1}, {1, 4104, 1}})
    for (const int off : {0, 1})
      cases.push_back({"reduce of operands" + type + std::to_string(s.n) + " " + std::to_string(s.inner) + " by " +
                           std::to_string(off),
                       [=](Device device) { return reduce_of_operands<T>(device, s, off); }});
}
const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all;
    add_cases<float>(all);
    add_cases<double>(all);
    add_cases<bf16>(all);
    add_cases_of_operands<float>(all);
    add_cases_of_operands<double>(all);
    add_cases_of_operands<bf16>(all);
    return all;
  }();
  return cases;
}

TEST_CASE("loops on a GPU are bit-identical to the CPU's") {
  if (no_gpu()) return;
  for (const Case& one : all_cases()) {
    CAPTURE(one.name);
    const Numbers expected = one.run(Device::cpu);
    in_every_order([&] { CHECK(one.run(Device::cuda) == expected); });
  }
}

TEST_CASE("loops on a GPU: a limited number of blocks covers all elements and rows") {
  if (no_gpu()) return;
  const int64_t blocks = cuda::max_blocks;
  CHECK(map_line<float>(Device::cuda, blocks * 256 + 77) == map_line<float>(Device::cpu, blocks * 256 + 77));
  const Repeated wide{{blocks + 1, 256}, {1, 2}};
  CHECK(map_broadcast<float>(Device::cuda, wide) == map_broadcast<float>(Device::cpu, wide));
  CHECK(rows_of<float>(Device::cuda, blocks * 8 + 9, 3) == rows_of<float>(Device::cpu, blocks * 8 + 9, 3));
  CHECK(rows_of<float>(Device::cuda, blocks + 3, 1025) == rows_of<float>(Device::cpu, blocks + 3, 1025));
  const Sizes flat{blocks * 128 + 9, 8, 1};
  CHECK(reduce_of<float>(Device::cuda, flat) == reduce_of<float>(Device::cpu, flat));
}

TEST_CASE("broadcast on a GPU: a broadcast in many launches of few elements gives equal results") {
  if (no_gpu()) return;
  for (const Repeated& shape : repeated_shapes()) {
    int64_t counts[2];
    const Broadcast<2> plan = broadcast_of(shape, counts);
    DeviceArray<float> x(Device::cuda, whole_numbers<float>(counts[0], 1));
    DeviceArray<float> y(Device::cuda, whole_numbers<float>(counts[1], 2));
    DeviceArray<float> one(Device::cuda, plan.numel()), many(Device::cuda, plan.numel());
    map(Device::cuda, plan, Line{3}, one.data(), x.input(), y.input());
    cuda::split_map(std::index_sequence<0, 1>(), 50, plan, Line{3}, many.data(), x.input(), y.input());
    CHECK(one.read() == many.read());
  }
}

TEST_CASE("division by a fixed number") {
  const uint32_t max_n = (1u << 31) - 1;
  for (const uint32_t d : {1u, 2u, 3u, 7u, 64u, 641u, 50257u, 65535u, (1u << 30) - 1, 1u << 30, max_n}) {
    const cuda::Divisor divisor(d);
    for (const uint32_t n : {0u, 1u, 2u, d - 1, d, d < max_n ? d + 1 : d, 123456789u, max_n - 1, max_n, max_n / d * d})
      CHECK(divisor.quotient(n) == n / d);
  }
}

TEST_CASE("max on a GPU: only a NaN in the first position is kept, as on the CPU") {
  if (no_gpu()) return;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int n : {40, 2000})
    for (const int at : {0, 1, n - 1}) {
      std::vector<float> x = whole_numbers<float>(n, 9);
      x[static_cast<size_t>(at)] = nan;
      x[static_cast<size_t>(n / 2)] = 8;
      for (const Device device : {Device::cpu, Device::cuda}) {
        DeviceArray<float> in(device, x), out(device, n);
        rows(device, 1, n, Largest<float>{{in.data()}, {out.data()}, n});
        for (const double value : out.read()) CHECK((at == 0 ? value != value : value == 8));
      }
    }
}

TEST_CASE("sums on a GPU are bit-identical in every run") {
  if (no_gpu()) return;
  const Sizes s{1, 100000, 3};
  std::vector<float> x(static_cast<size_t>(s.n * s.inner));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1 / static_cast<float>(i + 1);
  DeviceArray<float> in(Device::cuda, x), out(Device::cuda, s.inner);
  std::vector<Numbers> results;
  in_every_order([&] {
    for (int run = 0; run < 3; ++run) {
      reduce(Device::cuda, s.outer, s.n, s.inner, Element<float>{{in.data()}}, out.data());
      results.push_back(out.read());
    }
  });
  for (const Numbers& result : results) CHECK(result == results.front());
}

#if defined(EMULATE_CUDA)
TEST_CASE("every barrier of the loops is needed: without it, some order of threads changes the results") {
  if (thread_sanitizer) return;
  std::vector<Case> cases;  // no integers: sums of undefined values may overflow
  for (const Case& one : all_cases())
    if (one.name.find(" f32 ") != std::string::npos && !one.name.starts_with("map") && !one.name.starts_with("counts"))
      cases.push_back(one);
  cases.push_back({"reduce: more tiles than blocks", [](Device device) {
                     return reduce_of<float>(device, {cuda::max_blocks * 128 + 9, 8, 1});
                   }});
  std::vector<Numbers> expected;
  for (const Case& one : cases) expected.push_back(one.run(Device::cpu));
  const auto right = [&](const std::string& kind) {
    bool all = true;
    for (size_t i = 0; i < cases.size() && all; ++i)
      if (cases[i].name.starts_with(kind)) all = cases[i].run(Device::cuda) == expected[i];
    return all;
  };
  check_that_every_barrier_is_needed("cuda/loops/rows.cuh", [&] { return right("rows"); });
  check_that_every_barrier_is_needed("cuda/loops/reduce.cuh", [&] { return right("reduce"); });
}
#endif

}  // namespace
}  // namespace orrery
