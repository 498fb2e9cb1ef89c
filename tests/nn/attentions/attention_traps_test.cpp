// Pitfalls of attentions: masked weights, the count L, rounding, weight decay, order of sums.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "engine/system/parallel.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/positions/base/position.h"
#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

Tensor attend_heads(Sublayer& layer, const AttentionInputs& in, ForwardPass& pass) {
  return dynamic_cast<AttentionLayer&>(layer).attend_heads(in, {}, pass);
}

}  // namespace

TEST_CASE("a masked key gives 0, not F(0): for functions that are not 0 at 0") {
  // Values are 1 and scores 0, so the output is the sum of weights: F(0) times the number of keys.
  const AttentionInputs r{.query = Tensor::zeros({1, 6, 1, 4}, Dtype::f64),
                          .key = random_tensor({1, 6, 1, 4}, 2),
                          .value = Tensor::full({1, 6, 1, 4}, 1, Dtype::f64)};
  const std::pair<const char*, double> at_zero[] = {{"sigmoid", 0.5}, {"softplus", std::log(2)}, {"exp", 1}};
  for (const auto& [function, f] : at_zero)
    for (const bool simple : {false, true}) {
      const std::string name = function;
      CAPTURE(name);
      CAPTURE(simple);
      std::unique_ptr<ReferenceMode> guard;
      if (simple) guard = std::make_unique<ReferenceMode>();
      const auto sums = [&](const AttentionMask& m) {
        return slice(attention(r, {.mask = m}, Activation(name)).output, 3, 0, 1).to_vector();
      };
      const auto times = [factor = f](std::vector<double> n) {
        for (double& x : n) x *= factor;
        return n;
      };
      const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
        return largest_difference(Tensor::from({6}, a, Dtype::f64), Tensor::from({6}, b, Dtype::f64)) <= 1e-14;
      };
      CHECK(near(sums({.causal = true}), times({1, 2, 3, 4, 5, 6})));
      CHECK(near(sums({.causal = true, .attend_to_self = false}), times({0, 1, 2, 3, 4, 5})));
      CHECK(near(sums({.causal = false, .lengths = whole({1}, {2})}), times({2, 2, 2, 2, 2, 2})));
      CHECK(near(sums({.causal = true, .window = 2}), times({1, 2, 2, 2, 2, 2})));
      const Tensor documents = whole({1, 6}, {1, 1, 2, 2, 2, 2});
      CHECK(near(sums({.causal = false, .query_document_ids = documents, .key_document_ids = documents}),
                 times({2, 2, 4, 4, 4, 4})));
    }
}

TEST_CASE("slots count in L: in all of its meanings but fixed") {
  const AttentionInputs without{
      .query = random_tensor({1, 4, 1, 2}, 1), .key = random_tensor({1, 4, 1, 2}, 2), .value = {}};
  AttentionInputs with = without;
  with.slot_key = random_tensor({3, 1, 2}, 4);
  const auto lengths = [](const char* rule, const AttentionInputs& in) {
    const Tensor n = LengthScale("test", parse_spec(rule), true).length(in, {});
    return broadcast_to(n, {1, 4, 1, 1}).to_vector();
  };
  for (const char* rule : {"keys_visible", "row_index"}) {
    CHECK(lengths(rule, without) == std::vector<double>{1, 2, 3, 4});
    CHECK(lengths(rule, with) == std::vector<double>{4, 5, 6, 7});
  }
  CHECK(lengths("padded_length", without) == std::vector<double>{4, 4, 4, 4});
  CHECK(lengths("padded_length", with) == std::vector<double>{7, 7, 7, 7});
  CHECK(lengths("fixed(9)", with) == std::vector<double>{9, 9, 9, 9});
  // In the output: every score is 0, sigmoid gives 1/2, so the mean over keys and slots is 1/2.
  const auto layer = layer_of("pointwise(sigmoid, persistent=slots(3, scaled=no))", {.width = 2, .heads = 1});
  for (const NamedParameter& p : parameters_of(*layer))
    if (p.path.starts_with("slots.")) p.parameter->value.copy_from(Tensor::full({3, 1, 2}, 1, Dtype::f64));
  ForwardPass pass;
  const Tensor y = attend_heads(*layer,
                                {.query = Tensor::zeros({1, 4, 1, 2}, Dtype::f64),
                                 .key = random_tensor({1, 4, 1, 2}, 2),
                                 .value = Tensor::full({1, 4, 1, 2}, 1, Dtype::f64)},
                                pass);
  CHECK(largest_difference(y, Tensor::full({1, 4, 2}, 0.5, Dtype::f64)) <= 1e-14);
}

TEST_CASE("length=row_index counts the tokens of a query's own document, also if its id is used again") {
  const AttentionInputs r{.query = random_tensor({2, 6, 1, 2}, 1), .key = random_tensor({2, 6, 1, 2}, 2), .value = {}};
  const Tensor ids = whole({2, 6}, {1, 1, 2, 2, 1, 1, 5, 4, 4, 4, 5, 4});
  const AttentionMask packed{.query_document_ids = ids, .key_document_ids = ids};
  const std::vector<double> expected{1, 2, 1, 2, 3, 4, 1, 1, 2, 3, 2, 4};
  for (const char* rule : {"row_index", "keys_visible"})  // equal under a causal mask
    CHECK(LengthScale("test", parse_spec(rule), true).length(r, packed).to_vector() == expected);
}

TEST_CASE("L^-alpha is applied once and in f32: bf16 attentions over 1,014 keys err by roundings of bf16 only") {
  constexpr int64_t keys = 1014;  // ln 1014 is midway between two bf16 values: L^-1 from it is off by 1.5 %
  const AttentionInputs r{.query = Tensor::full({1, keys, 1, 4}, 0.5, Dtype::bf16),
                          .key = Tensor::full({1, keys, 1, 4}, 1, Dtype::bf16),
                          .value = Tensor::full({1, keys, 1, 4}, 1, Dtype::bf16)};
  CHECK(LengthScale("test", parse_spec("keys_visible"), false).length(r, {.causal = false}).to_vector() ==
        std::vector<double>(keys, keys));
  const NoGrad guard;
  for (const char* text : {"pointwise(relu)", "pointwise(relu, alpha=0.5)", "pointwise(relu, alpha=learned(1))",
                           "relu_former", "relu_former(gamma=2)"}) {
    const std::string spec = text;
    CAPTURE(spec);
    const auto layer = make_attention(parse_spec(spec), {.width = 4, .heads = 1, .causal = false});
    name_paths(*layer), initialize(*layer, 1), convert(*layer, Dtype::bf16);
    ForwardPass pass;
    const double gamma = spec.ends_with("2)") ? std::exp(0.69140625) : 1;  // ln 2 in bf16
    // every score is 0.5 * 4 / sqrt(4) = 1, so the sum of relu(s) v is the number of keys
    const double expected = spec.starts_with("relu_former") ? keys / std::sqrt(keys / 2.) / gamma
                            : spec.ends_with("0.5)")        ? std::sqrt(keys)
                                                            : 1;
    for (const double y : attend_heads(*layer, r, pass).to_vector())
      CHECK(std::abs(y / expected - 1) <= 0x1p-8);  // head output, and its product with the factor: half an ULP each
  }
}

TEST_CASE("bf16 attentions whose length is a factor agree with f32 over 1,000 tokens") {
  const Tensor x = random_tensor({1, 1000, 16}, 1, Dtype::bf16);
  const NoGrad guard;
  for (const char* spec : {"pointwise(relu)", "pointwise(sigmoid, alpha=learned(0.5))", "relu_former", "gau(size=8)"}) {
    const std::string name = spec;
    CAPTURE(name);
    const auto layer =
        make_attention(parse_spec(spec), {.width = 16, .heads = 2, .causal = false, .initial_weights = {.std = 0.5}});
    name_paths(*layer), initialize(*layer, 1), convert(*layer, Dtype::bf16);
    ForwardPass pass;
    const Tensor y = (*layer)(x, pass).to(Dtype::f32);
    convert(*layer, Dtype::f32);  // equal values
    const Tensor expected = (*layer)(x.to(Dtype::f32), pass);
    const double size = max(abs(expected).reshape(Shape{expected.numel()}), 0).item();
    CHECK(largest_difference(y, expected) <= 0.02 * size);
  }
}

TEST_CASE(
    "decay skips spans, gammas, temperatures, thresholds, alphas, gains, ALiBi's factors, a dynamic span's weight and "
    "parameters of activations") {
  const auto position = make_position(parse_spec("alibi(learned=yes)"), {.context = 64, .width = 8, .heads = 2});
  std::set<std::string> decaying, still;
  for (const char* spec :
       {"softmax(temperature=learned(1), entropy_threshold=learned(0.5), span=adaptive_span(8), qk_norm=rms)",
        "softmax(span=dynamic_span(8))", "pointwise(relu, alpha=learned(1))", "relu_former", "rela(gated=yes)", "gau",
        "softmax(persistent=3)", "pointwise(xielu, gate=prelu)"}) {
    const auto layer = layer_of(spec, {.width = 8, .heads = 2});
    for (const NamedParameter& p : parameters_of(*layer)) (p.parameter->decay ? decaying : still).insert(p.path);
  }
  for (const NamedParameter& p : parameters_of(*position)) (p.parameter->decay ? decaying : still).insert(p.path);
  CHECK(decaying == std::set<std::string>{"gate.weight", "input.weight", "output.weight", "query_key_value.weight",
                                          "slots.key", "slots.value"});
  for (const char* path :
       {"temperature", "entropy_threshold", "span.share", "span.share_of_token.weight", "span.share_of_token.bias",
        "alpha", "log_gamma", "gain", "opening", "query_gain", "factor", "activation", "gate_activation"}) {
    const std::string name = path;
    CAPTURE(name);
    CHECK(still.contains(name));
  }
}

TEST_CASE("linear: forward and backward are bit-identical for 1, 2 and 3 threads, at 2 x 512 tokens of 6 heads") {
  const AttentionLayerOptions options{.width = 48, .heads = 6, .kv_heads = 3};
  const Tensor x = random_tensor({2, 512, 48}, 1), dy = random_tensor({2, 512, 48}, 2);
  const int before = thread_count();
  for (const char* spec : {"linear", "linear(exp, normalize=yes, attend_to_self=no)"}) {
    const auto layer = layer_of(spec, options);
    std::vector<LayerResult> results;
    for (const int threads : {1, 2, 3}) {
      set_thread_count(threads);
      results.push_back(run(*layer, x, dy, {}));
      if (threads == 1) continue;
      CHECK(largest_difference(results.back().y, results[0].y) == 0);
      CHECK(largest_difference(results.back().dx, results[0].dx) == 0);
    }
  }
  set_thread_count(before);
}

TEST_CASE("learned parameters of heads have bit-identical gradients for 1, 2 and 3 threads") {
  const Tensor x = random_tensor({2, 300, 24}, 1), dy = random_tensor({2, 300, 24}, 2);
  const int before = thread_count();
  std::vector<Tensor> gradients;
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    const auto layer = layer_of("pointwise(xielu, persistent=3)", {.width = 24, .heads = 3});
    run(*layer, x, dy, {});
    for (const NamedParameter& p : parameters_of(*layer))
      if (p.path == "activation") gradients.push_back(p.parameter->value.grad());
  }
  set_thread_count(before);
  REQUIRE(gradients.size() == 3);
  CHECK(gradients[0].shape() == Shape{3, 2});
  CHECK(max(abs(gradients[0].reshape(Shape{6})), 0).item() > 0);
  for (const Tensor& each : gradients) CHECK(largest_difference(each, gradients[0]) == 0);
}
