// Ridge regression in closed form, checked by its normal equations, for few and for many rows.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "engine/system/parallel.h"
#include "models/evaluation/ridge.h"
#include "tests/support/message.h"

using namespace orrery;
using namespace orrery::models;
using orrery::testing::expect_error;

namespace {

Tensor random(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = normal(RandomKey{seed, 0}, i);
  return Tensor::from(Shape{rows, columns}, values, Dtype::f64);
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double value : x.to_vector()) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace

TEST_CASE("ridge: the gradient of the regularized squared error is zero at the weights, for few and many rows") {
  for (const int64_t rows : {int64_t{5}, int64_t{30}, int64_t{200}})
    for (const double strength : {0.001, 1.0, 1024.0}) {
      CAPTURE(rows);
      CAPTURE(strength);
      const Tensor x = random(rows, 30, 1), y = random(rows, 20, 2), w = Ridge(x, y).weights(strength);
      REQUIRE(w.shape() == Shape{30, 20});
      const Tensor gradient = matmul(x, matmul(x, w) - y, {.a = true}) + scale(w, strength);
      CHECK(largest(gradient) < 1e-10);
    }
}

TEST_CASE("ridge: one input has the weight <x, y> / (<x, x> + strength)") {
  const auto column = [](std::initializer_list<double> x) { return Tensor::from(Shape{3, 1}, x, Dtype::f64); };
  const Tensor x = column({1, 2, 3}), y = column({2, 0, 1});
  CHECK(Ridge(x, y).weights(6).item() == doctest::Approx(5.0 / 20).epsilon(1e-14));
  const Tensor target = Tensor::from(Shape{1, 1}, {4}, Dtype::f64);
  // x y / (<x, x> + strength)
  const std::vector<double> found = Ridge(x.reshape(Shape{1, 3}), target).weights(6).to_vector();
  for (size_t i = 0; i < 3; ++i)
    CHECK(found[i] == doctest::Approx(static_cast<double>(i + 1) * 4 / 20).epsilon(1e-14));
}

TEST_CASE("ridge: the weights have the same bits for one and several threads") {
  const Tensor x = random(300, 150, 3), y = random(300, 40, 4);
  const int before = thread_count();
  set_thread_count(1);
  const std::vector<double> one = Ridge(x, y).weights(2).to_vector();
  set_thread_count(2);
  CHECK(Ridge(x, y).weights(2).to_vector() == one);
  set_thread_count(before);
}

TEST_CASE("ridge: a matrix that is not positive definite is an error") {
  const Tensor b = Tensor::from(Shape{2, 1}, {1, 1}, Dtype::f64);
  expect_error([&] { solve_positive_definite(Tensor::from(Shape{2, 2}, {1, 2, 2, 1}, Dtype::f64), b); })
      .names("ridge")
      .value("pivot 1")
      .offers("strength");
  expect_error([&] { solve_positive_definite(Tensor::from(Shape{2, 2}, {NAN, 0, 0, 1}, Dtype::f64), b); })
      .names("ridge")
      .value("pivot 0")
      .offers("NaN");
}
