// Weights of attention: dropout and row statistics.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "engine/autograd/hooks.h"
#include "nn/diagnostics/diagnostics.h"
#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

std::string with_dropout(std::string spec, const std::string& dropout) {
  if (spec.back() != ')') return spec + "(dropout=" + dropout + ")";
  spec.pop_back();
  return spec + ", dropout=" + dropout + ")";
}
std::vector<std::string> specs_with_weights() {
  std::vector<std::string> all;
  for (const std::string& spec : attention_specs())
    if (!spec.starts_with("linear")) all.push_back(spec);
  return all;
}
Tensor read(Sublayer& layer, const Tensor& x, bool training, uint64_t key) {
  ForwardPass pass;
  pass.training = training, pass.rng = RandomKey{key};
  const NoGrad guard;
  return layer(x, pass);
}

}  // namespace

TEST_CASE("dropout of weights acts in training only, by the rng key, with equal mean: every attention with weights") {
  const Tensor x = random_tensor({2, 6, 8}, 1);
  for (const std::string& spec : specs_with_weights()) {
    CAPTURE(spec);
    const AttentionLayerOptions options{.width = 8, .heads = 2};
    const auto plain = layer_of(spec, options), dropping = layer_of(with_dropout(spec, "0.4"), options);
    const Tensor expected = read(*plain, x, true, 1);
    CHECK(largest_difference(read(*dropping, x, false, 1), expected) == 0);
    CHECK(largest_difference(read(*dropping, x, true, 1), read(*dropping, x, true, 1)) == 0);
    CHECK(largest_difference(read(*dropping, x, true, 1), read(*dropping, x, true, 2)) > 1e-3);
    CHECK(largest_difference(read(*dropping, x, true, 1), expected) > 1e-3);
    if (spec == "rela") continue;  // normalizes after the dropout, so the mean of its output differs
    constexpr int draws = 400;
    Tensor total = Tensor::zeros_like(expected), squares = total;
    for (uint64_t key = 0; key < draws; ++key) {
      const Tensor off = read(*dropping, x, true, key) - expected;
      total = total + off, squares = squares + off * off;
    }
    const std::vector<double> off = total.to_vector(), square = squares.to_vector();
    for (size_t i = 0; i < off.size(); ++i) {  // five standard errors of the mean
      if (!(std::abs(off[i] / draws) <= 5 * std::sqrt(square[i]) / draws + 1e-12)) {
        CAPTURE(i);
        CHECK(off[i] / draws == doctest::Approx(0));
      }
    }
  }
}

TEST_CASE("dropout of weights: fused and in reference mode, equal weights are dropped, in output and gradients") {
  const Tensor x = random_tensor({2, 6, 8}, 1), dy = random_tensor({2, 6, 8}, 2);
  for (const std::string& spec : specs_with_weights()) {
    CAPTURE(spec);
    const auto layer = layer_of(with_dropout(spec, "0.4"), {.width = 8, .heads = 2});
    ForwardPass pass;
    pass.training = true, pass.rng = RandomKey{3};
    const LayerResult fused = run(*layer, x, dy, pass);
    const ReferenceMode guard;
    const LayerResult simple = run(*layer, x, dy, pass);
    CHECK(largest_difference(fused.y, simple.y) <= 1e-12);
    CHECK(largest_difference(fused.dx, simple.dx) <= 1e-12);
  }
}

TEST_CASE(
    "dropout on pointwise weights: a weight is 0 or grows by 1 / (1 - p), L counts all keys, no row is renormalized") {
  constexpr int64_t keys = 8;
  const Tensor q = random_tensor({1, keys, 1, keys}, 1), k = random_tensor({1, keys, 1, keys}, 2);
  std::vector<double> unit(keys * keys);
  for (size_t i = 0; i < keys; ++i) unit[i * keys + i] = 1;
  const Tensor v = Tensor::from({1, keys, 1, keys}, unit, Dtype::f64);  // the head output equals the weights
  for (const char* spec : {"pointwise(sigmoid)", "pointwise(relu)", "relu_former", "softmax", "sparsemax(scale=0.1)"}) {
    const std::string name = spec;
    CAPTURE(name);
    const AttentionLayerOptions options{.width = keys, .heads = 1, .causal = false};
    const auto weights_by = [&](const std::string& text) {
      const auto layer = layer_of(text, options);
      ForwardPass pass;
      pass.training = true, pass.rng = RandomKey{5};
      return dynamic_cast<AttentionLayer&>(*layer)
          .attend_heads({.query = q, .key = k, .value = v}, {}, pass)
          .to_vector();
    };
    const std::vector<double> all = weights_by(spec), some = weights_by(with_dropout(spec, "0.4"));
    int fallen = 0, alive = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      alive += all[i] != 0, fallen += all[i] != 0 && some[i] == 0;
      if (some[i] != 0) CHECK(some[i] == doctest::Approx(all[i] / 0.6).epsilon(1e-12));
    }
    CHECK(fallen > alive / 8);
    CHECK(fallen < alive * 3 / 5);
  }
}

TEST_CASE("row statistics: sum, entropy, fraction of zeros and maximum equal those of the weights, fused or not") {
  const Tensor q = random_tensor({2, 7, 4, 5}, 1), k = random_tensor({2, 7, 2, 5}, 2),
               v = random_tensor({2, 7, 2, 5}, 3);
  AttentionInputs plain{.query = q, .key = k, .value = v}, slots = plain, spanned = plain;
  slots.slot_key = random_tensor({3, 2, 5}, 4), slots.slot_value = random_tensor({3, 2, 5}, 5);
  spanned.span = Tensor::from({4}, {1.5, 2, 3, 9}, Dtype::f64);
  const Tensor lengths = whole({2}, {7, 3}), none = whole({2}, {0, 5});
  const std::pair<AttentionInputs, AttentionOptions> cases[] = {
      {plain, {}},
      {plain, {.mask = {.causal = false, .lengths = lengths}}},
      {plain, {.mask = {.causal = false, .lengths = none}}},
      {plain, {.mask = {.attend_to_self = false}}},
      {slots, {.mask = {.attend_to_self = false, .lengths = lengths}}},
      {spanned, {.mask = {.lengths = lengths}, .ramp = 2}}};
  for (const char* function : {"", "relu", "sigmoid", "tanh"})
    for (size_t number = 0; number < std::size(cases); ++number)
      for (const bool simple : {false, true}) {
        const std::string name = function;
        CAPTURE(name);
        CAPTURE(number);
        CAPTURE(simple);
        const auto& [r, o] = cases[number];
        std::unique_ptr<ReferenceMode> guard;
        if (simple) guard = std::make_unique<ReferenceMode>();
        const std::optional<Activation> f = function[0] ? std::optional<Activation>(function) : std::nullopt;
        const AttentionOutput read = attention(r, o, f, true);
        const std::vector<double> w = attention_weights(r, o, f).to_vector(),
                                  captured = broadcast_to(attention_mask(r, o), attention_weights(r, o, f).shape())
                                                 .to_vector();
        const size_t rows = static_cast<size_t>(read.sum.numel()), width = w.size() / rows;
        const std::vector<double> sums = read.sum.to_vector(), zeros = read.zero_fraction.to_vector(),
                                  largest = read.maximum.to_vector(), entropy = read.entropy.to_vector(),
                                  plain_entropy = row_entropy(attention_weights(r, o, f)).to_vector();
        for (size_t row = 0; row < rows; ++row) {
          double total = 0, zero = 0, count = 0, expected_max = -INFINITY;
          for (size_t j = row * width; j < (row + 1) * width; ++j) {
            total += w[j], zero += captured[j] != 0 && w[j] == 0, count += captured[j];
            if (captured[j] != 0) expected_max = std::max(expected_max, w[j]);
          }
          CHECK(sums[row] == doctest::Approx(total).epsilon(1e-12));
          CHECK(std::abs(entropy[row] - plain_entropy[row]) <= 1e-12);
          CHECK(zeros[row] == doctest::Approx(count > 0 ? zero / count : 0).epsilon(1e-12));
          CHECK(largest[row] == doctest::Approx(count > 0 ? expected_max : 0).epsilon(1e-12));
        }
      }
}

TEST_CASE("hooks capture the row statistics of any layer's weights, and change nothing") {
  const Tensor x = random_tensor({2, 6, 8}, 1);
  for (const std::string& spec : specs_with_weights()) {
    if (spec.starts_with("gau") || spec.find("split=yes") != std::string::npos || needs_causal(spec)) continue;
    CAPTURE(spec);
    const auto layer = layer_of(spec, {.width = 8, .heads = 2, .causal = false});
    const Tensor plain = read(*layer, x, false, 1);
    std::map<std::string, Tensor> captured;
    const Hooks hooks({"weights", "row_sum", "row_entropy", "row_zero_fraction", "row_max"},
                      [&](const std::string& name, const Tensor& value) { captured[name] = value; });
    CHECK(largest_difference(read(*layer, x, false, 1), plain) == 0);
    hooks.check_all_matched();
    const Tensor w = captured.at("weights");
    CHECK(largest_difference(captured.at("row_sum"), sum(w, {-1})) <= 1e-13);
    CHECK(largest_difference(captured.at("row_entropy"), row_entropy(w)) <= 1e-13);
    CHECK(largest_difference(captured.at("row_max"), max(w, -1)) <= 1e-13);
    if (spec == "softmax")
      CHECK(largest_difference(captured.at("row_zero_fraction"), Tensor::zeros({2, 2, 6}, Dtype::f64)) == 0);
    if (spec == "naive") CHECK(mean(captured.at("row_zero_fraction")).item() > 0.1);
  }
}

TEST_CASE("ReLU rows can be all zero: output and gradients are 0, and dead_row_fraction counts these rows") {
  // Queries are positive, keys of head 0 negative: half of the rows have no positive score.
  const Tensor q = abs(random_tensor({1, 6, 2, 4}, 1)) + 0.1, v = random_tensor({1, 6, 2, 4}, 3);
  const Tensor sign = Tensor::from({1, 1, 2, 1}, {-1, 1}, Dtype::f64);
  const Tensor k = (abs(random_tensor({1, 6, 2, 4}, 2)) + 0.1) * sign;
  for (const char* spec : {"pointwise(relu)", "naive(relu)", "relu_former", "rela"})
    for (const bool simple : {false, true}) {
      const std::string name = spec;
      CAPTURE(name);
      CAPTURE(simple);
      std::unique_ptr<ReferenceMode> guard;
      if (simple) guard = std::make_unique<ReferenceMode>();
      const auto layer = layer_of(spec, {.width = 8, .heads = 2});
      const Tensor query = q.clone().set_requires_grad();
      ForwardPass pass;
      pass.requested_losses = {"normalization_loss", "entropy_margin_loss"};
      Tensor y = dynamic_cast<AttentionLayer&>(*layer).attend_heads({.query = query, .key = k, .value = v}, {}, pass);
      const Tensor dead = slice(y, 2, 0, 4);
      CHECK(largest_difference(dead, Tensor::zeros_like(dead)) == 0);
      CHECK(largest_difference(slice(y, 2, 4, 8), Tensor::zeros_like(dead)) > 1e-3);
      y = sum(y * random_tensor(y.shape(), 6));
      for (const ForwardPass::Loss& loss : pass.losses) y = y + loss.value;
      y.backward();
      CHECK(largest_difference(slice(query.grad(), 2, 0, 1), Tensor::zeros({1, 6, 1, 4}, Dtype::f64)) == 0);
    }
  const AttentionInputs r{.query = q, .key = k, .value = v};
  const Tensor w = attention_weights(r, {}, Activation("relu"));
  CHECK(dead_row_fraction(w, attention_mask(r, {})) == doctest::Approx(0.5));
  CHECK(dead_row_fraction(w) == doctest::Approx(0.5));
  // Query 0 has no visible key and is not counted.
  const AttentionOptions own_masked{.mask = {.attend_to_self = false}};
  CHECK(dead_row_fraction(attention_weights(r, own_masked, Activation("relu")), attention_mask(r, own_masked)) ==
        doctest::Approx(0.5));
  CHECK(dead_row_fraction(attention_weights(r, {}, {})) == 0);
}
