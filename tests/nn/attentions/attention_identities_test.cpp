// Identities between attentions, and identities of one attention.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <map>

#include "nn/diagnostics/diagnostics.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

TEST_CASE("naive(F) equals pointwise(F, alpha=0)") {
  const AttentionLayerOptions options{.width = 8, .heads = 2};
  const Tensor x = random_tensor({2, 7, 8}, 1);
  for (const char* f : {"relu", "sigmoid", "identity"}) {
    ForwardPass pass;
    const NoGrad guard;
    CHECK(largest_difference((*layer_of(std::string("naive(") + f + ")", options))(x, pass),
                             (*layer_of(std::string("pointwise(") + f + ", alpha=0)", options))(x, pass)) == 0);
  }
}

TEST_CASE("linear(identity) equals pointwise(identity, alpha=0)") {
  const Tensor x = random_tensor({2, 7, 8}, 1);
  for (const bool causal : {true, false}) {
    const AttentionLayerOptions options{.width = 8, .heads = 2, .causal = causal};
    ForwardPass pass;
    const NoGrad guard;
    CHECK(largest_difference((*layer_of("linear(identity)", options))(x, pass),
                             (*layer_of("pointwise(identity, alpha=0)", options))(x, pass)) <= 1e-13);
  }
}

TEST_CASE("with equal keys, pointwise attention with alpha = 1 returns the mean value times F of the score") {
  const Tensor q = random_tensor({1, 6, 2, 4}, 1), v = random_tensor({1, 6, 2, 4}, 3);
  const Tensor k = broadcast_to(random_tensor({1, 1, 2, 4}, 2), {1, 6, 2, 4});
  for (const char* name : {"relu", "sigmoid", "gelu"}) {
    const std::string function = name;
    CAPTURE(function);
    const auto layer =
        layer_of("pointwise(" + function + ", alpha=1, scale=1)", {.width = 8, .heads = 2, .causal = false});
    ForwardPass pass;
    const Tensor o = dynamic_cast<AttentionLayer&>(*layer).attend_heads({.query = q, .key = k, .value = v}, {}, pass);
    const Tensor expected = Activation(function)(sum(q * k, {-1}, true)) * mean(v, {1}, true);
    CHECK(largest_difference(o, expected.reshape(o.shape())) <= 1e-14);
  }
}

TEST_CASE("causal attention with equal scores has the mean entropy ln(T!) / T, the ceiling of four bins") {
  for (const int64_t row_count : {16, 64}) {
    const Tensor q = random_tensor({1, row_count, 2, 4}, 1), v = random_tensor({1, row_count, 2, 4}, 3);
    const Tensor k = broadcast_to(random_tensor({1, 1, 2, 4}, 2), {1, row_count, 2, 4});
    const double ceiling = std::lgamma(static_cast<double>(row_count) + 1) / static_cast<double>(row_count);
    for (const char* function : {"", "sigmoid"}) {
      const std::optional<Activation> f = function[0] ? std::optional<Activation>(function) : std::nullopt;
      const Tensor h = mean(attention({.query = q, .key = k, .value = v}, {}, f, true).entropy, {0, 2});
      CHECK(largest_difference(h, Tensor::full({2}, ceiling, Dtype::f64)) <= 1e-12);
      CHECK(causal_entropy_ceiling(row_count) == doctest::Approx(ceiling).epsilon(1e-14));
      // a third of the heads each: half of the ceiling, the full ceiling, a tenth of it
      const Tensor heads = concatenate({h * 0.5 + 1e-9, h, h * 0.1}, 0);
      CHECK(entropy_histogram(heads, ceiling - 1e-9) == std::array<double, 4>{1.0 / 3, 0, 1.0 / 3, 1.0 / 3});
    }
  }
}

TEST_CASE("sum_j s_j dH/ds_j is 0 by the derivative of attention: a factor on a row's scores changes no ReLU entropy") {
  // s is linear in q, so <q_i, dH_i/dq_i> = sum_j s_ij dH_i/ds_ij; for softmax this is not 0
  const Tensor k = random_tensor({2, 7, 2, 5}, 2), v = random_tensor({2, 7, 2, 5}, 3);
  for (const char* function : {"relu", ""}) {
    const Tensor q = random_tensor({2, 7, 2, 5}, 1).set_requires_grad();
    const std::optional<Activation> f = function[0] ? std::optional<Activation>(function) : std::nullopt;
    const Tensor h = attention({.query = q, .key = k, .value = v}, {}, f, true).entropy;
    backward(h, random_tensor(h.shape(), 4));
    const Tensor along = sum(q.detach() * q.grad(), {-1});
    CHECK(largest_difference(q.grad(), Tensor::zeros_like(q)) > 0.1);
    if (f)
      CHECK(largest_difference(along, Tensor::zeros_like(along)) <= 1e-13);
    else
      CHECK(largest_difference(along, Tensor::zeros_like(along)) > 0.1);
  }
}

TEST_CASE("persistent slots with an empty context are a softmax memory, and under a layer norm that with norm=layer") {
  const int64_t width = 6;
  const Tensor x = random_tensor({2, 7, width}, 1).set_requires_grad(), dy = random_tensor({2, 7, width}, 2);
  for (const bool normalized : {false, true}) {
    CAPTURE(normalized);
    FeedForwardOptions options{.width = width, .d_ff = 5};
    const auto feed_forward = make_feed_forward(
        parse_spec(normalized ? "memory(softmax, slots=5, norm=layer, epsilon=1e-5)" : "memory(softmax, slots=5)"),
        options);
    name_paths(*feed_forward), convert(*feed_forward, Dtype::f64);
    std::map<std::string, Tensor> parameters;
    for (const NamedParameter& p : parameters_of(*feed_forward)) {
      const int seed = 10 + static_cast<int>(parameters.size());
      p.parameter->value.copy_from(random_tensor(p.parameter->value.shape(), seed));
      parameters[p.path] = p.parameter->value;
    }
    ForwardPass pass;
    backward((*feed_forward)(x, pass), dy);
    const Tensor expected = (*feed_forward)(x, pass).detach(), dx = x.grad().clone();
    x.set_grad({});
    const auto slots = [&](const char* name) { return parameters.at(name).reshape(Shape{5, 1, width}); };
    const Tensor nothing = Tensor::empty({2, 0, 1, width}, Dtype::f64, Device::cpu);
    Tensor y = attention({.query = x.reshape(Shape{2, 7, 1, width}),
                          .key = nothing,
                          .value = nothing,
                          .slot_key = slots("key"),
                          .slot_value = slots("value")},
                         {.mask = {.causal = false}})
                   .output.reshape(x.shape());
    if (normalized) {  // by its formula
      const Tensor centred = y - mean(y, {-1}, true), variance = mean(centred * centred, {-1}, true);
      y = centred * reciprocal(sqrt(variance + 1e-5)) * parameters.at("norm.weight") + parameters.at("norm.bias");
    }
    CHECK(largest_difference(y.detach(), expected) <= 1e-12);
    backward(y, dy);
    CHECK(largest_difference(x.grad(), dx) <= 1e-11);
    x.set_grad({});
  }
}

TEST_CASE("relu_former with gamma sqrt(n / 2) = 1 is the naive attention") {
  const AttentionLayerOptions options{.width = 8, .heads = 2};
  const auto former = layer_of("relu_former(length=fixed(2))", options), naive = layer_of("naive(relu)", options);
  for (const NamedParameter& p : parameters_of(*former))
    if (p.path == "log_gamma") p.parameter->value.copy_from(Tensor::zeros({2, 1}, Dtype::f64));
  ForwardPass pass;
  const NoGrad guard;
  const Tensor x = random_tensor({2, 7, 8}, 1);
  const Tensor y = (*naive)(x, pass);  // the factor 1 / (gamma sqrt(n / 2)) is 1 to an ULP
  CHECK(largest_difference((*former)(x, pass), y) <= 1e-15 * max(abs(y).reshape(Shape{y.numel()}), 0).item());
}

TEST_CASE("a factor on the scores scales relu's weights and keeps their entropy, but changes softmax's") {
  const Tensor q = random_tensor({2, 7, 2, 5}, 1), k = random_tensor({2, 7, 2, 5}, 2),
               v = random_tensor({2, 7, 2, 5}, 3);
  const AttentionInputs r{.query = q, .key = k, .value = v};
  const auto read = [&](double scale, const std::optional<Activation>& f) {
    return attention(r, {.scale = scale}, f, true);
  };
  const Activation relu("relu");
  const AttentionOutput once = read(1, relu), thrice = read(3, relu);
  CHECK(largest_difference(once.output * 3.0, thrice.output) <= 1e-13);
  CHECK(largest_difference(once.entropy, thrice.entropy) <= 1e-13);
  CHECK(largest_difference(read(1, {}).entropy, read(3, {}).entropy) > 0.1);
}

TEST_CASE("every row of score gradients adds up to 0 for softmax, sparsemax and entmax, not for pointwise weights") {
  // Channel 0 of dq_i is scale * sum_j ds_ij k_j0. Here k_j0 = 1 for every key, so it is the sum of
  // the row's score gradients, times the scale.
  const int64_t row_count = 7;
  const Tensor one = Tensor::full({1, row_count, 1, 1}, 1, Dtype::f64);
  const Tensor q = random_tensor({1, row_count, 1, 4}, 1),
               k = concatenate({one, random_tensor({1, row_count, 1, 3}, 2)}, 3),
               v = random_tensor({1, row_count, 1, 4}, 3);
  for (const char* text :
       {"softmax", "softmax(span=adaptive_span(5, R=3), attend_to_self=yes)", "softmax(persistent=3)", "sparsemax",
        "entmax15", "pointwise(sigmoid)", "pointwise(softplus)", "relu_former"}) {
    const std::string spec = text;
    CAPTURE(spec);
    const bool pointwise = spec.starts_with("pointwise") || spec == "relu_former";
    const auto layer = layer_of(spec, {.width = 4, .heads = 1});
    for (const NamedParameter& p : parameters_of(*layer))  // channel 0 of the slots' keys is 1 as well
      if (p.path == "slots.key") {
        std::vector<double> keys = p.parameter->value.to_vector();
        for (size_t n = 0; n < keys.size(); n += 4) keys[n] = 0.5;  // stored divided by sqrt(4)
        p.parameter->value.copy_from(Tensor::from(p.parameter->value.shape(), keys, Dtype::f64));
      }
    const Tensor leaf = q.clone().set_requires_grad();
    ForwardPass pass;
    const Tensor o = dynamic_cast<AttentionLayer&>(*layer).attend_heads({.query = leaf, .key = k, .value = v},
                                                                        random_tensor({1, row_count, 4}, 5), pass);
    backward(o, random_tensor(o.shape(), 4));
    const std::vector<double> dq = leaf.grad().to_vector();
    for (size_t i = 0; i < row_count; ++i) {
      CAPTURE(i);
      if (!pointwise) CHECK(std::abs(dq[4 * i]) <= 1e-13);
      if (pointwise && spec != "relu_former") CHECK(std::abs(dq[4 * i]) > 1e-5);
    }
    if (spec == "relu_former") CHECK(std::abs(dq[4 * 6]) > 1e-5);  // rows without a positive score give 0
  }
}
