// Sizes whose product overflows int64_t: rejected with their factors, never wrapped around.
#include "engine/types/sizes.h"

#include <doctest/doctest.h>

#include "engine/tensor/tensor.h"
#include "engine/types/shape.h"
#include "tests/support/message.h"

using namespace orrery;
using orrery::testing::expect_error;

namespace {
constexpr int64_t huge = int64_t{1} << 62, half = int64_t{1} << 31;
}

TEST_CASE("sizes: products and sums that fit are exact, others throw an Error with their factors") {
  CHECK(product_of_sizes("x", {}) == 1);
  CHECK(product_of_sizes("x", {3, 4, 5}) == 60);
  CHECK(product_of_sizes("x", {half, 0}) == 0);
  CHECK(product_of_sizes("x", {max_elements, 1}) == max_elements);
  CHECK(sum_of_sizes("x", {1, 2, 3}) == 6);
  const auto batch_by_context = [] { product_of_sizes("batch x context", {huge, 2}); };
  expect_error(batch_by_context).names("batch x context").value("4611686018427387904 x 2").offers("smaller");
  expect_error([] { product_of_sizes("x", {half, half, 4}); }).names("x").value("2147483648 x 2147483648 x 4");
  expect_error([] { sum_of_sizes("x", {huge, huge}); }).names("x").value("4611686018427387904 + 4611686018427387904");
  expect_error([] { product_of_sizes("x", {max_elements, 2}); }).names("x").value(max_elements).value(2);
  expect_error([] { sum_of_sizes("x", {max_elements, 1}); }).names("x").value(max_elements).value(1);
  expect_error([] { product_of_sizes("x", {-1, 2}); }).names("x").value("-1").value(2);
}

TEST_CASE("shape: the number of elements cannot overflow, for any way to make a shape") {
  const auto refused = [](const auto& make, const char* shape) {
    expect_error(make).names("shape").value(shape).names("memory").offers("smaller");
  };
  refused([] { Shape{half, half, 4}; }, "(2147483648, 2147483648)");
  refused([] { Shape{huge, 4}; }, "(4611686018427387904)");
  refused([] { static_cast<void>((Shape{2, half}.with(0, half))); }, "(2147483648, 2147483648)");
  refused([] { static_cast<void>((Shape{0, half, half}.without(0))); }, "(2147483648, 2147483648)");
  CHECK((Shape{0, half, half}).numel() == 0);
  CHECK((Shape{0, 3}.with(0, 4)).numel() == 12);
  CHECK((Shape{2, 3, 4}.without(1)).numel() == 8);
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{2, 3} == Shape{2, 4}.with(1, 3));
}

TEST_CASE("tensor: an allocation beyond the machine's memory is an error with the bytes, and leaks nothing") {
  const MemoryUse before = memory_use(Device::cpu);
  const auto make = [] { static_cast<void>(Tensor::empty(Shape{max_elements}, Dtype::f64, Device::cpu)); };
  expect_error(make).names("allocate").names("memory").names("cpu").value("4611686018427387904 bytes");
  CHECK(memory_use(Device::cpu).allocated == before.allocated);
  CHECK(memory_use(Device::cpu).refused == before.refused + 1);
}
