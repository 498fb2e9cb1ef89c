// Rows with sums of their columns, on a GPU or its emulation. The inputs are whole numbers, whose sums
// are exact in any order.
#include "engine/loops/loops.h"

#include <doctest/doctest.h>

#include <cmath>

#include "cuda/runtime/waiting.h"
#include "tests/cuda/kernel_testing.h"

namespace orrery {
namespace {

using Numbers = std::vector<double>;

template <class T>
struct Doubles {  // y = 2 x, and the sums of x and of x^2
  In<T> x;
  Out<T> y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    using A = Arithmetic<T>;
    const auto in = row.preload(In<T>{x.pointer + r * row.n});
    row.map(y.at(r * row.n), [](A v) { return 2 * v; }, in);
    row.add_to_columns([](A v) { return Values<A, 2>{{v, v * v}}; }, in);
  }
};

template <class T>
struct Case {
  using A = Arithmetic<T>;
  int64_t count;
  int n;
  std::vector<T> numbers;
  DeviceArray<T> x{Device::cuda, numbers}, y{Device::cuda, count * n};
  DeviceArray<A> sum{Device::cuda, whole_numbers<A>(n, 2)}, square{Device::cuda, n};
  Case(int64_t rows, int columns, std::vector<T> of) : count(rows), n(columns), numbers(std::move(of)) {}
  Case(int64_t rows, int columns) : Case(rows, columns, whole_numbers<T>(rows * columns, 1)) {}

  bool run(bool accumulate, bool may_wait = false) {
    const std::array<SumOfRows<A>, 2> out = {{{sum.data(), accumulate, may_wait}, {square.data(), false, may_wait}}};
    return cuda::rows_with_sums<2, A>(count, n, Doubles<T>{{x.data()}, {y.data()}}, out);
  }
  Numbers expected(bool accumulate, bool squares) {
    Numbers all(static_cast<size_t>(n));
    if (accumulate && !squares) all = DeviceArray<A>(Device::cuda, whole_numbers<A>(n, 2)).read();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double v = static_cast<double>(static_cast<A>(numbers[i]));
      all[i % static_cast<size_t>(n)] += squares ? v * v : v;
    }
    return all;
  }
};

template <class T>
void check_sums(int64_t count, int n) {
  INFO(name(dtype_of<T>), ": ", count, " rows of ", n);
  for (const bool accumulate : {false, true})
    in_every_order([&] {
      Case<T> test(count, n);
      REQUIRE(test.run(accumulate));
      CHECK(test.sum.read() == test.expected(accumulate, false));
      CHECK(test.square.read() == test.expected(accumulate, true));
      Numbers twice = DeviceArray<T>(Device::cuda, test.numbers).read();
      for (double& v : twice) v *= 2;
      CHECK(test.y.read() == twice);
    });
}

TEST_CASE("rows with sums: rows of a warp and of a block, fewer and more than the blocks") {
  if (no_gpu()) return;
  for (const int64_t count : {1, 9, 70}) {
    check_sums<bf16>(count, 768);
    check_sums<float>(count, 256);
    check_sums<double>(count, 1024);
    check_sums<bf16>(count, 1032);
    check_sums<float>(count, 4096);
  }
  check_sums<bf16>(8 * cuda::max_blocks_with_sums + 13, 264);
  check_sums<float>(cuda::max_blocks_with_sums + 3, 1032);
  for (const int n : {8, 255, 260, 4104}) CHECK_FALSE(Case<float>(3, n).run(false));
  CHECK_FALSE(Case<float>(0, 256).run(false));
}

TEST_CASE("rows with sums: sums that may wait are those of sums that do not, and are launched together") {
  if (no_gpu()) return;
  Case<float> second(20, 1032);
  std::vector<float> numbers(300 * 768);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(std::sin(static_cast<double>(i * i % 9973)));
  Case<float> irregular(300, 768, numbers), waiting(300, 768, numbers);
  irregular.run(true, true);  // no guard lives: does not wait
  const Numbers before = waiting.sum.read();
  {
    const cuda::WaitingKernels guard;
    waiting.run(true, true), second.run(false, true);
    CHECK(waiting.sum.read() == before);
    cuda::WaitingKernels::launch(waiting.x.data());  // no sum writes there
    CHECK(waiting.sum.read() == before);
    cuda::WaitingKernels::launch(second.square.data());
    CHECK(waiting.sum.read() == irregular.sum.read());
    CHECK(waiting.square.read() == irregular.square.read());
    CHECK(second.sum.read() == second.expected(false, false));
    cuda::WaitingKernels::launch();  // nothing is left
    second.run(true, true);
  }
  CHECK(second.sum.read() == second.expected(false, false));  // dropped, as after an error
}

#if defined(EMULATE_CUDA)
TEST_CASE("rows with sums: every barrier is needed") {
  if (thread_sanitizer) return;
  const auto right = [] {
    Case<float> test(70, 264);
    test.run(true);
    return test.sum.read() == test.expected(true, false) && test.square.read() == test.expected(true, true);
  };
  check_that_every_barrier_is_needed("cuda/loops/rows_with_sums.cuh", right);
  check_that_every_barrier_is_needed("cuda/loops/block_sums.cu", right);
}
#endif

}  // namespace
}  // namespace orrery
