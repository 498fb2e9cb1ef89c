// Normalizations, losses and row statistics compared with PyTorch (tests/golden/variants.py).
#include <doctest/doctest.h>

#include <cmath>

#include "engine/attention/attention.h"
#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/fused.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/losses/base/loss.h"
#include "nn/normalizations/base/normalization.h"
#include "tests/support/golden_cases.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::golden_cases;
using orrery::testing::GoldenCase;
using orrery::testing::largest_difference;

namespace {

void check_gradient(const GoldenCase& test, const std::string& name, const Tensor& leaf) {
  INFO("gradient of ", name);
  REQUIRE(leaf.grad());
  const Tensor expected = test.tensor("d" + name);
  CHECK(largest_difference(leaf.grad().reshape(expected.shape()), expected) <= 1e-11);
}

void check_normalization(const GoldenCase& test) {
  const Tensor x = test.leaf("x");
  const auto layer =
      make_normalization(parse_spec(test.spec), {.width = x.size(-1), .bias = test.option("bias") != "no"});
  name_paths(*layer);
  convert(*layer, Dtype::f64);
  const std::vector<NamedParameter> parameters = parameters_of(*layer);
  for (const NamedParameter& p : parameters) {
    const Shape shape = p.parameter->value.shape();
    p.parameter->value = test.tensor(p.path).reshape(shape).clone().set_requires_grad();
  }
  CHECK(parameters.size() == test.parameters.size());
  for (const auto& [path, buffer] : buffers_of(*layer)) buffer->copy_from(test.tensor(path));
  ForwardPass pass;
  pass.training = test.option("mode") == "train";
  if (test.has("lengths")) pass.lengths = test.tensor("lengths");
  const Tensor y = (*layer)(x, pass);
  CHECK(largest_difference(y, test.tensor("y")) <= 1e-12);
  backward(y, test.tensor("dy"));
  check_gradient(test, "x", x);
  for (const NamedParameter& p : parameters) check_gradient(test, p.path, p.parameter->value);
  if (!pass.training || buffers_of(*layer).empty()) return;
  after_step(*layer);
  for (const auto& [path, buffer] : buffers_of(*layer))
    CHECK(largest_difference(*buffer, test.tensor(path + "_after")) <= 1e-12);
}

struct Statistics {
  Tensor sum, entropy, visible;  // (B, H, T), (B, H, T), (B or 1, 1, T)
  Tensor real;
  Tensor zero_fraction, maximum;  // (B, H, T), without gradient
};

// Returns the row statistics of a rule's weights, times the length factor if it has one.
Statistics statistics_of(const GoldenCase& test, const Tensor& q, const Tensor& k, const Tensor& kappa,
                         const Tensor& rho) {
  const Spec spec = parse_spec(test.spec);
  AttentionInputs r{.query = q, .key = k, .value = k};
  if (kappa) r.slot_key = r.slot_value = transpose(kappa, 0, 1) * std::sqrt(static_cast<double>(q.size(3)));
  AttentionOptions o{.mask = {.causal = test.yes("causal")}, .scale = 1 / std::sqrt(static_cast<double>(q.size(3)))};
  if (test.has("lengths")) o.mask.lengths = o.mask.query_lengths = test.tensor("lengths");
  if (test.has("documents")) o.mask.query_document_ids = o.mask.key_document_ids = test.tensor("documents");
  std::optional<Activation> function;
  if (spec.name == "pointwise") function.emplace(spec.items.at(0).value);
  if (spec.name == "relu_former") function.emplace("relu");
  const AttentionOutput read = attention(r, o, function, true);
  const LengthScale rule("test", parse_spec("keys_visible"), o.mask.causal);
  const auto rows = [](const Tensor& x) { return permute(x, {0, 2, 3, 1}).reshape(Shape{x.size(0), 1, x.size(1)}); };
  const Tensor n = rows(rule.length(r, o.mask)), log_n = rows(rule.log_length(r, o.mask));
  Tensor factor = Tensor::full({1}, 1, Dtype::f64);
  if (spec.name == "pointwise") factor = exp(log_n * (spec.items.size() > 1 ? -0.5 : -1.0));
  if (spec.name == "relu_former")
    factor = exp(-(log_n * 0.5)) * std::sqrt(2.0) / exp(rho.reshape(Shape{1, q.size(2), 1}));
  Statistics s{read.sum * factor, read.entropy, n, real_rows(r, o.mask), {}, {}};
  if (!kappa) s.zero_fraction = read.zero_fraction, s.maximum = read.maximum * factor.detach();
  return s;
}

// Returns the loss of each row separately, (B, H, T): the mean over one row.
template <class Loss>
Tensor of_each_row(const Tensor& rows, const Loss& loss) {
  const Tensor flat = rows.reshape(Shape{rows.numel()});
  std::vector<Tensor> each;
  for (int64_t i = 0; i < flat.numel(); ++i) each.push_back(loss(slice(flat, 0, i, i + 1), i).reshape(Shape{1}));
  return concatenate(each, 0).reshape(rows.shape());
}

void check_rows(const GoldenCase& test) {
  const auto optional_leaf = [&](const char* name) { return test.has(name) ? test.leaf(name) : Tensor(); };
  const Tensor q = test.leaf("q"), k = test.leaf("k"), kappa = optional_leaf("kappa"), rho = optional_leaf("rho");
  const Statistics s = statistics_of(test, q, k, kappa, rho);
  const Tensor zero = Tensor::zeros({1}, Dtype::f64), sum = where(s.real, s.sum, zero),
               n = where(s.real, s.visible, zero);
  const std::string loss = test.option("loss"), statistic = test.option("statistic");
  Tensor y;
  if (loss == "normalization_loss") y = normalization_loss(sum);
  if (loss == "entropy_margin_loss") y = entropy_margin_loss(s.entropy, n);
  if (loss == "normalization")
    y = permute(of_each_row(s.sum, [](const Tensor& row, int64_t) { return normalization_loss(row); }), {0, 2, 1});
  if (loss == "entropy_margin") {
    const Tensor visible = broadcast_to(s.visible, s.entropy.shape()).reshape(Shape{s.entropy.numel()});
    const auto of_row = [&](const Tensor& row, int64_t i) {
      return entropy_margin_loss(row.reshape(Shape{1, 1, 1}), slice(visible, 0, i, i + 1));
    };
    y = permute(of_each_row(s.entropy, of_row), {0, 2, 1});
  }
  if (statistic == "sum") y = permute(s.sum, {0, 2, 1});
  if (statistic == "entropy") y = permute(s.entropy, {0, 2, 1});
  REQUIRE(y);
  const bool scalar = test.tensor("y").numel() == 1;
  const Tensor live = scalar ? Tensor::full({1}, 1, Dtype::f64) : permute(s.real, {0, 2, 1});
  CHECK(largest_difference(y * live, test.tensor("y").reshape(y.shape()) * live) <= 1e-12);
  backward(y, scalar ? Tensor::full(y.shape(), 1, Dtype::f64) : test.tensor("dy"));
  check_gradient(test, "q", q), check_gradient(test, "k", k);
  if (statistic == "entropy") {
    const auto same = [&](const char* name, const Tensor& ours) {
      INFO(name);
      CHECK(largest_difference(permute(ours, {0, 2, 1}) * live, test.tensor(name) * live) <= 1e-12);
    };
    same("row_sum", s.sum.detach()), same("zero_share", s.zero_fraction), same("maximum", s.maximum);
  }
  if (rho && !loss.starts_with("entropy_margin")) check_gradient(test, "rho", rho);  // H does not depend on gamma
  if (kappa) check_gradient(test, "kappa", kappa);
}

void check_regularizer(const GoldenCase& test) {
  const Tensor q = test.leaf("q"), k = test.leaf("k"), theta = test.leaf("theta"), t = test.leaf("temperature");
  const bool causal = test.yes("causal");
  const AttentionOutput read =
      attention({.query = q / t.reshape(Shape{q.size(2), 1}), .key = k, .value = k},
                {.mask = {.causal = causal}, .scale = 1 / std::sqrt(static_cast<double>(q.size(3)))}, {}, true);
  const Tensor y = entropy_regularizer(read.entropy, theta, {.tolerance = test.real("margin", 0), .causal = causal}) *
                   test.real("coefficient", 1);
  CHECK(std::abs(y.item() - test.tensor("y").item()) <= 1e-12);
  y.backward();
  check_gradient(test, "q", q), check_gradient(test, "k", k);
  check_gradient(test, "theta", theta), check_gradient(test, "temperature", t);
}

// Checks the mean over layers of each layer's penalty; entropies are (layers, H), in 7 equal rows.
void check_penalty(const GoldenCase& test) {
  const Tensor entropies = test.leaf("entropies"), theta = test.leaf("theta");
  const int64_t layers = entropies.size(0), heads = entropies.size(1);
  Tensor y = Tensor::zeros({}, Dtype::f64);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Tensor rows = broadcast_to(entropies[layer].reshape(Shape{1, heads, 1}), Shape{1, heads, 7});
    y = y + entropy_regularizer(rows, theta[layer], {.tolerance = test.real("margin", 0), .causal = false}) *
                (test.real("coefficient", 1) / static_cast<double>(layers));
  }
  CHECK(std::abs(y.item() - test.tensor("y").item()) <= 1e-12);
  y.backward();
  check_gradient(test, "entropies", entropies), check_gradient(test, "theta", theta);
}

}  // namespace

TEST_CASE("every normalization agrees with PyTorch, output, running statistics and every gradient") {
  int checked = 0;
  for (const GoldenCase& test : golden_cases("normalizations.safetensors")) {
    if (test.option("kind") == "image") continue;  // images there are channels-first
    INFO(test.name, ": ", test.spec);
    check_normalization(test);
    ++checked;
  }
  CHECK(checked == 22);
}

TEST_CASE("every loss and row statistic agrees with PyTorch, values and every gradient") {
  int checked = 0;
  for (const GoldenCase& test : golden_cases("losses.safetensors")) {
    INFO(test.name, ": ", test.spec);
    const std::string loss = test.option("loss");
    ++checked;
    if (!loss.empty() || !test.option("statistic").empty()) {
      check_rows(test);
    } else if (test.name == "entropy_penalty") {
      check_penalty(test);
    } else if (test.name.starts_with("entropy_regularizer")) {
      check_regularizer(test);
    } else if (test.spec == "span_penalty") {
      const Tensor z = test.leaf("z");  // (layers, heads): the layers' penalties add up
      Tensor y;
      for (int64_t layer = 0; layer < z.size(0); ++layer) {
        const Tensor one = span_penalty(z[layer], test.real("S", 0)) * test.real("coefficient", 1);
        y = y ? y + one : one;
      }
      CHECK(std::abs(y.item() - test.tensor("y").item()) <= 1e-12);
      y.backward();
      check_gradient(test, "z", z);
    } else {
      const Tensor logits = test.leaf("logits"), targets = test.tensor("targets");
      const Tensor y = test.spec == "sigmoid_cross_entropy" ? sigmoid_cross_entropy(logits, targets)
                                                            : cross_entropy(logits, targets, test.real("smoothing", 0));
      CHECK(std::abs(y.item() - test.tensor("y").item()) <= 1e-12);
      y.backward();
      check_gradient(test, "logits", logits);
    }
  }
  CHECK(checked == 36);
}
