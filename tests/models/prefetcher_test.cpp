#include "models/prefetcher.h"

#include <doctest/doctest.h>

#include <atomic>

#include "engine/ops/ops.h"
#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::expect_error;

TEST_CASE("prefetcher: returns the value of the key, expected or not, and throws errors when the value is requested") {
  std::atomic<int> made = 0;  // written by two threads
  Prefetcher<int, int> squares([&](const int& key) {
    ++made;
    check(key != 13, "13 is refused");
    return key * key;
  });
  CHECK(squares.at(1, 2) == 1);
  CHECK(squares.at(2, 3) == 4);
  CHECK(squares.at(7, 13) == 49);
  expect_error([&] { squares.at(13, 14); }).value(13);
  CHECK(squares.at(14, 13) == 196);
  CHECK(squares.at(3, 4) == 9);
  CHECK(made >= 6);
}

// A test for ThreadSanitizer: one thread makes the next tensor while another computes with this
// one. Both use the same memory and cores.
TEST_CASE("prefetcher: makes tensors while others are in use") {
  const auto made = [](const int& key) { return Tensor::full(Shape{64, 64}, key) * Tensor::full(Shape{64, 64}, 2); };
  Prefetcher<int, Tensor> batches(made);
  Tensor total = Tensor::zeros(Shape{64, 64});
  for (int step = 0; step < 50; ++step) total = total + matmul(batches.at(step, step + 1), Tensor::full({64, 64}, 0.5));
  CHECK(total[0][0].item() == 64 * 49 * 50 / 2);  // each of the 64 products is step * 2 / 2
}
