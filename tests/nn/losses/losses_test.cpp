// Losses compared with values computed by hand, and conventions that their headers fix.
#include <doctest/doctest.h>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/diagnostics/diagnostics.h"
#include "nn/losses/base/loss.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::expect_error;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

Tensor numbers(std::initializer_list<double> values) {
  return Tensor::from({static_cast<int64_t>(values.size())}, values, Dtype::f64);
}
Tensor targets(const std::vector<int32_t>& t) { return Tensor::from({static_cast<int64_t>(t.size())}, t); }

}  // namespace

TEST_CASE("label smoothing mixes the target's cross-entropy with the mean of all") {
  const Tensor logits = random_tensor({3, 5}, 1);
  const double plain = cross_entropy(logits.clone(), targets({1, 4, 0})).item();
  double all = 0;
  for (int32_t v = 0; v < 5; ++v) all += cross_entropy(logits.clone(), targets({v, v, v})).item() / 5;
  CHECK(cross_entropy(logits.clone(), targets({1, 4, 0}), 0.1).item() == doctest::Approx(0.9 * plain + 0.1 * all));
  const Tensor uniform = Tensor::zeros({2, 8}, Dtype::f64);
  CHECK(cross_entropy(uniform, targets({3, 7}), 0.3).item() == doctest::Approx(std::log(8)));
  const auto all_smooth = [&] { cross_entropy(uniform, targets({3, 7}), 1.0); };
  expect_error(all_smooth).names("cross_entropy").names("smoothing").offers("[0, 1)").value(1);
  const auto sharpened = [&] { cross_entropy(uniform, targets({3, 7}), -0.1); };
  expect_error(sharpened).names("cross_entropy").names("smoothing").offers("[0, 1)").value(-0.1);
}

TEST_CASE("any negative target leaves its row out of the loss, the mean and the gradient, smoothed or not") {
  for (const double smoothing : {0.0, 0.2}) {
    INFO("smoothing ", smoothing);
    const Tensor logits = random_tensor({4, 5}, 1).set_requires_grad();
    const Tensor loss = cross_entropy(logits, targets({-1, 2, -100, 0}), smoothing);
    const double two = cross_entropy(logits.detach().slice(1, 2), targets({2}), smoothing).item(),
                 four = cross_entropy(logits.detach().slice(3, 4), targets({0}), smoothing).item();
    CHECK(loss.item() == doctest::Approx((two + four) / 2));
    loss.backward();
    const std::vector<double> g = logits.grad().to_vector();
    for (size_t v = 0; v < 5; ++v) {
      CHECK(g[v] == 0);
      CHECK(g[10 + v] == 0);
      CHECK(g[5 + v] != 0);
    }
  }
}

TEST_CASE("the gradient of a smoothed cross-entropy vanishes where the model predicts the smoothed target") {
  // q = (1 - s) [v = t] + s / V with s = 0.4, V = 4
  const Tensor logits = log(Tensor::from({1, 4}, {0.1, 0.7, 0.1, 0.1}, Dtype::f64)).detach().set_requires_grad();
  cross_entropy(logits, targets({1}), 0.4).backward();
  CHECK(largest_difference(logits.grad(), Tensor::zeros({1, 4}, Dtype::f64)) <= 1e-15);
}

TEST_CASE("sigmoid cross-entropy: a sum over classes, a mean over rows, no overflow") {
  CHECK(sigmoid_cross_entropy(Tensor::zeros({3, 4}, Dtype::f64), Tensor::full({3, 4}, 0.5, Dtype::f64)).item() ==
        doctest::Approx(4 * std::log(2)));
  const Tensor z = Tensor::from({2, 2}, {1e4, -1e4, -1e4, 1e4}, Dtype::f32).set_requires_grad();
  const Tensor loss = sigmoid_cross_entropy(z, Tensor::from({2, 2}, {1, 0, 1, 0}, Dtype::f32));
  CHECK(loss.item() == doctest::Approx((0 + 2e4) / 2));
  loss.backward();
  CHECK(z.grad().to_vector() == std::vector<double>{0, 0, -0.5, 0.5});
  const auto transposed = [] { sigmoid_cross_entropy(random_tensor({2, 3}), random_tensor({3, 2})); };
  expect_error(transposed).names("sigmoid_cross_entropy").value("(3, 2)").value("logits (2, 3)").offers("class");
  const auto scalars = [] { sigmoid_cross_entropy(Tensor::zeros(Shape{}), Tensor::zeros(Shape{})); };
  expect_error(scalars).names("sigmoid_cross_entropy").value("targets ()").value("logits ()").offers("class");
}

TEST_CASE("span penalty: the mean span times the longest, lambda S / H for each head") {
  const Tensor z = numbers({0, 0.5, 1, 0.1}).set_requires_grad();
  const Tensor loss = span_penalty(z, 1024);
  CHECK(loss.item() == doctest::Approx(1024 * 0.4));
  (loss * 2e-6).backward();
  for (const double g : z.grad().to_vector()) CHECK(g == doctest::Approx(2e-6 * 1024 / 4));
  expect_error([&] { span_penalty(z, 0); }).names("span_penalty").names("span").offers(0).value(0);
}

TEST_CASE("normalization loss: rows with sum 0 have loss 0 and gradient 0") {
  const double e = std::exp(1);
  const Tensor sums = numbers({e, 1, 1 / e, 0, -2}).set_requires_grad();
  const Tensor loss = normalization_loss(sums);
  CHECK(loss.item() == doctest::Approx(2.0 / 3));
  loss.backward();
  const std::vector<double> g = sums.grad().to_vector();
  CHECK(g[0] == doctest::Approx(1 / e / 3));
  CHECK(g[1] == 0);
  CHECK(g[2] == doctest::Approx(-e / 3));
  CHECK(g[3] == 0);
  CHECK(g[4] == 0);
  const Tensor dead = numbers({0, 0}).set_requires_grad();
  const Tensor none = normalization_loss(dead);
  none.backward();
  CHECK(none.item() == 0);
  CHECK(dead.grad().to_vector() == std::vector<double>{0, 0});
  CHECK(std::isnan(normalization_loss(numbers({1, std::nan("")})).item()));
}

TEST_CASE("normalization loss: dL/dgamma is -sign(ln S) / gamma, and at initialization the loss is 1.85 for 128 keys") {
  for (const double sum_at_one : {5.0, 0.2}) {
    const Tensor gamma = numbers({1.6}).set_requires_grad();
    normalization_loss(numbers({sum_at_one}) / gamma).backward();
    CHECK(gamma.grad().item() == doctest::Approx((sum_at_one > 1.6 ? -1 : 1) / 1.6));
  }
  // A row of relu(z) / sqrt(n / 2) with z from N(0, 1) sums to sqrt(n / pi) on average.
  CHECK(normalization_loss(numbers({std::sqrt(128 / 3.14159265358979)})).item() ==
        doctest::Approx(1.8537).epsilon(1e-4));
}

TEST_CASE("entropy-margin loss: a uniform row has loss 0.3 ln n; rows with one visible key or none have loss 0") {
  const Tensor visible = numbers({0, 1, 2, 8});
  const Tensor h = Tensor::from({1, 1, 4}, {9, 0, std::log(2), std::log(8)}, Dtype::f64).set_requires_grad();
  const Tensor loss = entropy_margin_loss(h, visible);
  CHECK(loss.item() == doctest::Approx(0.3 * (std::log(2) + std::log(8)) / 3));
  loss.backward();
  const std::vector<double> g = h.grad().to_vector();
  CHECK(g[0] == 0);
  CHECK(g[1] == 0);
  CHECK(g[2] == doctest::Approx(1.0 / 3));
  CHECK(g[3] == doctest::Approx(1.0 / 3));
  CHECK(entropy_margin_loss(h.detach(), visible, 1.0).item() == doctest::Approx(0));
  const auto negative = [&] { entropy_margin_loss(h, visible, -1); };
  expect_error(negative).names("entropy_margin_loss").names("fraction").offers(0).value(-1);
}

TEST_CASE("entropy regularizer: the loss is 0 within the tolerance of the causal ceiling ln(T!) / T") {
  std::vector<double> uniform;
  for (int head = 0; head < 2; ++head)
    for (int i = 1; i <= 16; ++i) uniform.push_back(std::log(i));
  const Tensor h = Tensor::from({1, 2, 16}, uniform, Dtype::f64).set_requires_grad(), theta = numbers({1, 0.5});
  const double ceiling = causal_entropy_ceiling(16);
  theta.set_requires_grad();
  const Tensor loss = entropy_regularizer(h, theta);
  CHECK(loss.item() == doctest::Approx((0 + 0.25 * ceiling * ceiling) / 2));
  loss.backward();
  CHECK(theta.grad().to_vector()[0] == 0);
  CHECK(theta.grad().to_vector()[1] == doctest::Approx(-ceiling * 2 * 0.5 * ceiling / 2));
  CHECK(h.grad().to_vector()[20] == doctest::Approx(0.5 * ceiling / 16));
  CHECK(entropy_regularizer(h.detach(), numbers({0.85, 0.85})).item() == 0);
  CHECK(entropy_regularizer(h.detach(), numbers({1, 1}), {.tolerance = 0, .causal = false}).item() ==
        doctest::Approx(std::pow(std::log(16) - ceiling, 2)));
  const std::string axes = "(batch, heads, time) and (heads)";
  const std::string with_keys = "(batch, heads, time, keys) and (heads) or (heads, time)";
  const auto one_threshold = [&] { entropy_regularizer(h, numbers({1})); };
  expect_error(one_threshold).names("entropy_regularizer").value("(1, 2, 16)").value("threshold (1)").offers(axes);
  const auto one_temperature = [] { tempered(random_tensor({1, 2, 3, 4}), numbers({1})); };
  expect_error(one_temperature).names("tempered").value("(1, 2, 3, 4)").value("temperature (1)").offers(with_keys);
}

TEST_CASE("no factor on the weights of a row changes its entropy") {
  const Tensor s = random_tensor({4, 9}, 1), w = s * s;
  const Tensor p = w / sum(w, {-1}, true);
  CHECK(largest_difference(row_entropy(w), -sum(p * log(p), {-1})) <= 1e-14);
  CHECK(largest_difference(row_entropy(w), row_entropy(w * 1000.0)) <= 1e-13);
}
