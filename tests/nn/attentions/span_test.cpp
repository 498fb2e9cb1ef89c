// Distances that learned spans find by training, and distances that they do not find.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/fused.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/positions/base/position.h"
#include "tests/support/parameters.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::largest_difference;
using orrery::testing::parameter_at;
using orrery::testing::random_tensor;

namespace {

struct Layer final : Module {  // a relative position and an attention that uses it
  std::unique_ptr<Position> position;
  std::unique_ptr<Sublayer> attention;
  Layer(const std::string& spec, int64_t width, int64_t limit) {
    position = make_position(parse_spec("relative(" + std::to_string(limit) + ", keys)"),
                             {.context = limit + 1, .width = width, .heads = 1});
    attention = make_attention(
        parse_spec(spec), {.width = width, .heads = 1, .initial_weights = {.std = 0.2}, .position = position.get()});
    name_paths(*this);
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override { return (*attention)(x, pass); }
  void visit(Visitor& v) override { v("position", position), v("attention", attention); }
};

// Trains one head (limit 80, ramp 16) to sum the tokens at these lags. Returns its final reach.
double reach_after_training(const std::vector<int64_t>& lags, int steps) {
  constexpr int64_t width = 16, time = 96, batch = 4, limit = 80;
  constexpr double ramp = 16, penalty = 3e-4;
  Layer layer("softmax(span=adaptive_span(80, R=16))", width, limit);
  initialize(layer, 5);
  FlatParameters parameters(layer);
  const auto optimizer = make_optimizer(parse_spec("adamw(weight_decay=0)"), parameters);
  const int64_t first = *std::max_element(lags.begin(), lags.end());
  for (int step = 0; step < steps; ++step) {
    const Tensor x = Tensor::empty({batch, time, width}, Dtype::f32, Device::cpu);
    fill(x, normal(1), RandomKey{3, static_cast<uint64_t>(step)});
    Tensor target;
    for (const int64_t lag : lags) {
      const Tensor one = slice(x, 1, first - lag, time - lag);
      target = target ? target + one : one;
    }
    parameters.zero_gradients();
    ForwardPass pass;
    pass.training = true;
    pass.requested_losses = {"span_penalty"};
    const Tensor miss = slice(layer(x, pass), 1, first, time) - target;
    (mean(miss * miss) + pass.losses.at(0).value * penalty).backward();
    optimizer->step(1e-2, 1);
  }
  return limit * parameter_at(layer, "attention.span.share")->value.item() + ramp;
}

}  // namespace

TEST_CASE("a span grows over a ladder of useful tokens, each on the ramp of the previous one") {
  CHECK(reach_after_training({4, 12, 22, 34, 46, 58}, 400) > 58);
}

TEST_CASE("a span does not find one useful token far beyond its ramp, however useful") {
  CHECK(reach_after_training({58}, 400) < 58);
}

TEST_CASE("a full adaptive span equals the fixed span, and an empty one has the R most recent tokens") {
  const Tensor x = random_tensor({1, 20, 8}, 1);
  const auto make = [&](const std::string& spec) {
    auto layer = make_attention(parse_spec(spec), {.width = 8, .heads = 2, .context = 32});
    name_paths(*layer);
    convert(*layer, Dtype::f64);
    int seed = 0;
    for (const NamedParameter& p : parameters_of(*layer))
      if (p.path != "span.share") p.parameter->value.copy_from(random_tensor(p.parameter->value.shape(), ++seed));
    return layer;
  };
  const auto adaptive = make("softmax(span=adaptive_span(7, R=4))"),
             fixed = make("softmax(span=fixed(7))");  // both mask the query's own token
  Parameter* const span_fraction = parameter_at(*adaptive, "span.share");
  ForwardPass pass;
  const NoGrad guard;
  span_fraction->value.copy_from(Tensor::full({2}, 1, Dtype::f64));
  CHECK(largest_difference((*adaptive)(x, pass), (*fixed)(x, pass)) <= 1e-13);

  span_fraction->value.copy_from(Tensor::zeros({2}, Dtype::f64));
  std::vector<double> changed = x.to_vector();
  const Tensor before = (*adaptive)(x, pass);
  const auto moves = [&](int64_t token) {  // returns whether the last token's output depends on `token`
    std::vector<double> v = changed;
    for (int64_t c = 0; c < 8; ++c) v[static_cast<size_t>(token * 8 + c)] += 1;
    const Tensor after = (*adaptive)(Tensor::from(x.shape(), v, Dtype::f64), pass);
    return largest_difference(slice(after, 1, 19, 20), slice(before, 1, 19, 20)) > 1e-9;
  };
  for (int64_t distance = 1; distance <= 8; ++distance) {
    INFO("distance ", distance);
    CHECK(moves(19 - distance) == (distance <= 4));
  }
}

TEST_CASE("a span at z' = 0, where both ends of its ramp are at tokens, has equal fused and reference gradients") {
  const AttentionOptions options{.mask = {.attend_to_self = false}, .scale = 0.7, .ramp = 4};
  for (const char* const kind : {"softmax", "relu"}) {
    CAPTURE(kind);
    std::optional<Activation> function;
    if (std::string(kind) != "softmax") function.emplace(kind);
    const auto gradient = [&](bool reference) {
      AttentionInputs inputs{.query = random_tensor({2, 9, 2, 8}, 1), .key = random_tensor({2, 9, 2, 8}, 2)};
      inputs.value = random_tensor({2, 9, 2, 8}, 3), inputs.span = Tensor::full({2}, 1, Dtype::f64);
      inputs.span.set_requires_grad(true);
      const Tensor output = reference ? attention_reference(inputs, options, function, false).output
                                      : attention(inputs, options, function).output;
      sum(output * random_tensor(output.shape(), 4)).backward();
      return inputs.span.grad();
    };
    CHECK(largest_difference(gradient(true), gradient(false)) <= 1e-13);
    CHECK(std::abs(gradient(false).to_vector()[0]) > 1e-3);
  }
}
