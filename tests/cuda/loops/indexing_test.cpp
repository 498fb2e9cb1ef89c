// The sort on a GPU, and the addition of rows to the rows of a table, which uses it. Sums of whole
// numbers are equal in any order, so equal means ==.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/loops/sort.h"
#include "engine/ops/ops.h"
#include "nn/losses/base/loss.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/random_tensors.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

// Returns numbers in [0, limit), with a few outside if `outside`; half of them are equal.
std::vector<int32_t> random_indices(int64_t n, int64_t limit, uint32_t seed, bool outside) {
  std::vector<int32_t> x(static_cast<size_t>(n));
  for (int32_t& element : x) {
    seed = seed * 1664525u + 1013904223u;
    const uint32_t drawn = seed >> 8;
    element = static_cast<int32_t>(drawn % 2 ? limit / 2 : drawn / 2 % limit);
    if (outside && drawn % 11 == 0) element = drawn % 3 ? static_cast<int32_t>(limit) : -1;
  }
  return x;
}

struct SortCase {
  int64_t n, limit;
};
const std::vector<SortCase> sort_cases = {{1, 1},      {31, 7},       {33, 255},     {2048, 256},
                                          {2049, 257}, {5000, 50257}, {300, 1 << 30}};

Numbers sorted_by_definition(const std::vector<int32_t>& key, int64_t limit) {
  std::vector<int32_t> bounded = key, order(key.size());
  for (int32_t& k : bounded)
    if (k < 0 || k >= limit) k = static_cast<int32_t>(limit);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return bounded[static_cast<size_t>(a)] < bounded[static_cast<size_t>(b)];
  });
  Numbers all;
  for (const int32_t index : order) all.push_back(bounded[static_cast<size_t>(index)]);
  all.insert(all.end(), order.begin(), order.end());
  return all;
}
Numbers sorted_on_gpu(const std::vector<int32_t>& key, int64_t limit) {
  const int64_t n = static_cast<int64_t>(key.size());
  DeviceArray<int32_t> in(Device::cuda, key), sorted(Device::cuda, n), order(Device::cuda, n);
  cuda::sort(in.data(), n, limit, sorted.data(), order.data());
  Numbers all = sorted.read(), indices = order.read();
  all.insert(all.end(), indices.begin(), indices.end());
  return all;
}
bool sorts(const SortCase& s) {
  const std::vector<int32_t> key = random_indices(s.n, s.limit, 3, true);
  return sorted_on_gpu(key, s.limit) == sorted_by_definition(key, s.limit);
}

TEST_CASE("a sort on a GPU is stable, and puts indices out of range last") {
  if (no_gpu()) return;
  for (const SortCase& s : sort_cases) {
    CAPTURE(s.n);
    CAPTURE(s.limit);
    in_every_order([&] { CHECK(sorts(s)); });
  }
  cuda::sort(nullptr, 0, 5, nullptr, nullptr);
}

#if defined(EMULATE_CUDA)
TEST_CASE("every barrier of the sort is needed: without it, some order of threads changes the result") {
  if (thread_sanitizer) return;
  check_that_every_barrier_is_needed("cuda/loops/sort.cuh", [] {
    return std::all_of(sort_cases.begin(), sort_cases.end(), [](const SortCase& s) { return sorts(s); });
  });
}
#endif

struct AddCase {
  int64_t index_count, table_rows, columns;
};
const std::vector<AddCase> add_cases = {{1, 1, 1}, {5, 3, 7}, {31, 1, 64}, {200, 3, 65}, {300, 100, 130}, {64, 2, 3}};

template <class T>
Numbers added(Device device, const AddCase& s, const std::vector<int32_t>& index) {
  const Tensor table = testing::whole_numbers({s.table_rows, s.columns}, 1, dtype_of<T>).to(device).clone(),
               x = testing::whole_numbers({s.index_count, s.columns}, 2, dtype_of<T>).to(device);
  add_rows_in_place(table, x, Tensor::from({s.index_count}, index).to(device));
  return table.to(Device::cpu).to_vector();
}
// Computes in double and rounds once.
template <class T>
Numbers added_by_definition(const AddCase& s, const std::vector<int32_t>& index) {
  Numbers table = testing::whole_numbers({s.table_rows, s.columns}, 1, dtype_of<T>).to_vector();
  const Numbers x = testing::whole_numbers({s.index_count, s.columns}, 2, dtype_of<T>).to_vector();
  for (int64_t r = 0; r < s.index_count; ++r) {
    const int64_t v = index[static_cast<size_t>(r)];
    if (v < 0 || v >= s.table_rows) continue;
    for (int64_t c = 0; c < s.columns; ++c)
      table[static_cast<size_t>(v * s.columns + c)] += x[static_cast<size_t>(r * s.columns + c)];
  }
  for (double& value : table) value = static_cast<double>(static_cast<Arithmetic<T>>(static_cast<T>(value)));
  return table;
}
template <class T>
void check_added(const AddCase& s) {
  CAPTURE(s.index_count);
  CAPTURE(std::string(name(dtype_of<T>)));
  const std::vector<int32_t> inside = random_indices(s.index_count, s.table_rows, 5, false);
  CHECK(added<T>(Device::cpu, s, inside) == added_by_definition<T>(s, inside));
  const std::vector<int32_t> some_outside = random_indices(s.index_count, s.table_rows, 5, true);
  in_every_order([&] { CHECK(added<T>(Device::cuda, s, some_outside) == added_by_definition<T>(s, some_outside)); });
}
TEST_CASE("rows are added to the rows of a table with one rounding each; indices out of range are ignored") {
  if (no_gpu()) return;
  for (const AddCase& s : add_cases) {
    check_added<float>(s);
    check_added<double>(s);
    check_added<bf16>(s);
  }
}

TEST_CASE("one thousand bf16 ones add up to 1000") {
  if (no_gpu()) return;
  for (const Device device : {Device::cpu, Device::cuda}) {
    const Tensor table = Tensor::zeros({2, 3}, Dtype::bf16, device),
                 x = Tensor::full({1000, 3}, 1, Dtype::bf16, device);
    add_rows_in_place(table, x, Tensor::from({1000}, std::vector<int32_t>(1000, 1)).to(device));
    CHECK(table.to(Device::cpu).to_vector() == Numbers{0, 0, 0, 1000, 1000, 1000});
  }
}

TEST_CASE("on a GPU, an index out of range reads NaN; the other rows are correct") {
  if (no_gpu()) return;
  const Tensor table = Tensor::from({2, 2}, std::vector<double>{1, 2, 3, 4}).to(Device::cuda);
  const Tensor at = Tensor::from({3}, std::vector<int32_t>{1, 2, -1}).to(Device::cuda);
  const Numbers rows = index_select(table, at).to(Device::cpu).to_vector();
  CHECK(rows[0] == 3);
  CHECK(rows[1] == 4);
  for (size_t i = 2; i < 6; ++i) CHECK(std::isnan(rows[i]));
  const Tensor pair = Tensor::from({2}, std::vector<int32_t>{1, 2}).to(Device::cuda);
  const Numbers last = gather_last(table, pair).to(Device::cpu).to_vector();
  CHECK(last[0] == 2);
  CHECK(std::isnan(last[1]));
  CHECK(one_hot(pair, 2).to(Device::cpu).to_vector() == Numbers{0, 1, 0, 0});
}

TEST_CASE("gradients of an embedding on a GPU are bit-identical in every run") {
  if (no_gpu()) return;
  const Tensor at = Tensor::from({500}, random_indices(500, 9, 7, false)).to(Device::cuda);
  const Tensor dy = testing::random_tensor({500, 33}, 1, Dtype::f32).to(Device::cuda);
  std::vector<Numbers> results;
  in_every_order([&] {
    const Tensor table = Tensor::zeros({9, 33}, Dtype::f32, Device::cuda);
    add_rows_in_place(table, dy, at);
    results.push_back(table.to(Device::cpu).to_vector());
  });
  for (const Numbers& result : results) CHECK(result == results.front());
}

TEST_CASE("cross-entropy on a GPU overwrites the logits with the gradient") {
  if (no_gpu()) return;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Tensor x = testing::random_tensor({8, 20000}, 1, dtype).to(Device::cuda).clone().set_requires_grad();
    const Tensor targets = Tensor::from({8}, std::vector<int32_t>{3, 0, -1, 6, 3, 19999, 5, 1}).to(Device::cuda);
    const int64_t before = memory_use(Device::cuda).allocated;
    reset_peak(Device::cuda);
    const Tensor loss = nn::cross_entropy(x * 2.0, targets);  // from here on only the graph holds the logits
    loss.backward();
    const auto peak = static_cast<double>(memory_use(Device::cuda).peak - before);
    CHECK(peak < 2.2 * static_cast<double>(x.bytes()));  // the logits, and the gradient of x from their gradient
  }
}

}  // namespace
}  // namespace orrery
