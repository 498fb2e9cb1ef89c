// Diagnostics compared with values computed by hand.
#include "nn/diagnostics/diagnostics.h"

#include <doctest/doctest.h>

#include "engine/ops/ops.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

TEST_CASE("uniform causal attention has mean row entropy ln(T!) / T") {
  for (const auto& row : {std::pair(16, 1.917), std::pair(32, 2.549), std::pair(64, 3.206), std::pair(128, 3.878),
                          std::pair(256, 4.560), std::pair(512, 5.246)}) {
    const int positions = row.first;
    const double expected = row.second;
    INFO(positions, " positions");
    std::vector<double> weights;
    for (int i = 0; i < positions; ++i)
      for (int j = 0; j < positions; ++j) weights.push_back(j <= i ? 1.0 / (i + 1) : 0);
    const Tensor w = Tensor::from({positions, positions}, weights, Dtype::f64);
    CHECK(causal_entropy_ceiling(positions) == doctest::Approx(expected).epsilon(2e-4));
    CHECK(mean(row_entropy(w)).item() == doctest::Approx(causal_entropy_ceiling(positions)));
    CHECK(mean(row_entropy(w.to(Dtype::f32))).item() == doctest::Approx(expected).epsilon(2e-4));
  }
  CHECK(causal_entropy_ceiling(1) == 0);
  expect_error([] { causal_entropy_ceiling(0); }).names("causal_entropy_ceiling").value("0 positions").offers("one");
}

TEST_CASE("row entropy: one key or none gives 0, negative weights do not count, NaN gives NaN") {
  const Tensor w = Tensor::from({5, 4}, {0, 3, 0, 0, 0, 0, 0, 0, 1, -7, 1, 0, 2, 2, 2, 2, -1, -2, -3, 0}, Dtype::f64);
  const std::vector<double> h = row_entropy(w).to_vector();
  CHECK(h[0] == 0);
  CHECK(h[1] == 0);
  CHECK(h[2] == doctest::Approx(std::log(2)));
  CHECK(h[3] == doctest::Approx(std::log(4)));
  CHECK(h[4] == 0);
  CHECK(std::isnan(row_entropy(Tensor::from({1, 2}, {std::nan(""), 1}, Dtype::f64)).item()));
  CHECK(row_entropy(random_tensor({2, 3, 4, 5})).shape() == Shape{2, 3, 4});
}

TEST_CASE("scaling the scores of a row sharpens softmax, but not ReLU weights") {
  const Tensor z = random_tensor({6, 12}, 1), zero = Tensor::zeros({1}, Dtype::f64);
  CHECK(largest_difference(row_entropy(maximum(z, zero)), row_entropy(maximum(z * 5.0, zero))) <= 1e-13);
  CHECK(largest_difference(row_entropy(exp(z)), row_entropy(exp(z * 5.0))) > 0.1);
}

TEST_CASE("entropy histogram: four bins of the ceiling, each with its lower edge") {
  const Tensor h = Tensor::from({8}, {0, 0.99, 1, 1.99, 2, 3, 4, 4.001}, Dtype::f64);
  CHECK(entropy_histogram(h, 4) == std::array<double, 4>{0.25, 0.25, 0.125, 0.375});
  expect_error([&] { entropy_histogram(h, 0); }).names("entropy_histogram").names("ceiling").offers(0).value(0);
  const auto of_nan = [] { entropy_histogram(Tensor::from({1}, {std::nan("")}, Dtype::f64), 4); };
  expect_error(of_nan).names("entropy_histogram").value("not a number").names("diverged");
}

TEST_CASE("saturation fraction counts |alpha x| > 2") {
  const Tensor x = Tensor::from({5}, {-5, -4, 0, 3, 4.1}, Dtype::f32);
  CHECK(saturation_fraction(x, 0.5) == doctest::Approx(0.4));
  CHECK(saturation_fraction(x, -0.5) == doctest::Approx(0.4));
  CHECK(saturation_fraction(x, 0.5, 1) == doctest::Approx(0.8));
  CHECK(saturation_fraction(x, 0) == 0);
}

TEST_CASE("zero fraction counts exact zeros, among visible weights if a mask is given") {
  const Tensor w = Tensor::from({2, 3}, {0, 0.5, 0, 1e-30, 0, 0}, Dtype::f32);
  CHECK(zero_fraction(w) == doctest::Approx(4.0 / 6));
  CHECK(zero_fraction(w, Tensor::from({2, 3}, {1, 1, 0, 1, 1, 1}, Dtype::f32)) == doctest::Approx(3.0 / 5));
  CHECK(zero_fraction(w, Tensor::from({3}, {1, 1, 0}, Dtype::f32)) == doctest::Approx(2.0 / 4));
  CHECK(zero_fraction(w, Tensor::zeros({3})) == 0);
}

TEST_CASE("top fraction: fraction of a row's weight in its largest entries") {
  const Tensor w = Tensor::from({3, 4}, {1, 4, 3, 2, 0, 0, 0, 0, 5, -9, 0, 0}, Dtype::f64);
  CHECK(top_fraction(w, 0.25) == doctest::Approx((0.4 + 1) / 2));
  CHECK(top_fraction(w, 0.5) == doctest::Approx((0.7 + 1) / 2));
  CHECK(top_fraction(w, 0.001) == doctest::Approx((0.4 + 1) / 2));  // at least one entry
  CHECK(top_fraction(w, 1) == doctest::Approx(1));
  CHECK(top_fraction(Tensor::full({2, 4096}, 1), 0.002) == doctest::Approx(8.0 / 4096));
  expect_error([&] { top_fraction(w, 0); }).names("top_fraction").names("fraction").offers("(0, 1]").value(0);
}

TEST_CASE("variance ratio: over all elements, for any means") {
  const Tensor output = Tensor::from({4}, {11, 13, 11, 13}, Dtype::f32),
               residual = Tensor::from({2}, {-3, 1}, Dtype::f32);
  CHECK(variance(output) == 1);
  CHECK(variance_ratio(output, residual) == doctest::Approx(1.0 / 4));
  const auto of_constant = [&] { variance_ratio(output, Tensor::full({2, 2}, 3)); };
  expect_error(of_constant).names("variance_ratio").names("residual").value("(2, 2)").value("constant");
}
