// Sizes whose product is no int64_t: refused with their factors, never wrapped around.
#include "engine/types/sizes.h"

#include <doctest/doctest.h>

#include "engine/tensor/tensor.h"
#include "engine/types/shape.h"
#include "tests/support/errors.h"

using namespace orrery;
using orrery::testing::error_of;

namespace {
constexpr int64_t huge = int64_t{1} << 62, half = int64_t{1} << 31;
}

TEST_CASE("sizes: products and sums that fit are exact, others are an Error with their factors") {
  CHECK(product_of_sizes("x", {}) == 1);
  CHECK(product_of_sizes("x", {3, 4, 5}) == 60);
  CHECK(product_of_sizes("x", {half, 0}) == 0);
  CHECK(product_of_sizes("x", {largest_size, 1}) == largest_size);
  CHECK(sum_of_sizes("x", {1, 2, 3}) == 6);
  CHECK(error_of([] {
          product_of_sizes("batch x context", {huge, 2});
        }) == "batch x context: 4611686018427387904 x 2 is more than any memory holds; use smaller sizes");
  CHECK(error_of([] { product_of_sizes("x", {half, half, 4}); }).starts_with("x: 2147483648 x 2147483648 x 4 is more"));
  CHECK(error_of([] { sum_of_sizes("x", {huge, huge}); }).starts_with("x: 4611686018427387904 + 4611686018427387904"));
  CHECK(error_of([] { product_of_sizes("x", {largest_size, 2}); }) != "no error");
  CHECK(error_of([] { sum_of_sizes("x", {largest_size, 1}); }) != "no error");
  CHECK(error_of([] { product_of_sizes("x", {-1, 2}); }) != "no error");
}

TEST_CASE("shape: the count of elements cannot wrap around, however the shape comes about") {
  const std::string refusal = " has more elements than any memory holds; use smaller sizes";
  CHECK(error_of([] { Shape{half, half, 4}; }) == "shape: (2147483648, 2147483648)" + refusal);
  CHECK(error_of([] { Shape{huge, 4}; }) == "shape: (4611686018427387904)" + refusal);
  CHECK(error_of([] {
          static_cast<void>((Shape{2, half}.with(0, half)));
        }) == "shape: (2147483648, 2147483648)" + refusal);
  CHECK(error_of([] {
          static_cast<void>((Shape{0, half, half}.without(0)));
        }) == "shape: (2147483648, 2147483648)" + refusal);
  CHECK((Shape{0, half, half}).numel() == 0);
  CHECK((Shape{0, 3}.with(0, 4)).numel() == 12);
  CHECK((Shape{2, 3, 4}.without(1)).numel() == 8);
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{2, 3} == Shape{2, 4}.with(1, 3));
}

TEST_CASE("tensor: more than the machine has is refused with the bytes, and nothing is lost") {
  const MemoryUse before = memory_use(Device::cpu);
  const auto make = [] { static_cast<void>(Tensor::empty(Shape{largest_size}, Dtype::f64, Device::cpu)); };
  CHECK(error_of(make).starts_with("allocate: out of memory on cpu: asked for 4611686018427387904 bytes; "));
  CHECK(memory_use(Device::cpu).held == before.held);
  CHECK(memory_use(Device::cpu).refused == before.refused + 1);
}
