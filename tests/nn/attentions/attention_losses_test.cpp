// Losses of attention rows: equal to their formulas over the layer's own weights, and independent
// of padding and packing.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "nn/losses/base/loss.h"
#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

const char* const all_losses[] = {"normalization_loss", "entropy_margin_loss", "entropy_regularizer", "span_penalty"};

ForwardPass wanting() {
  ForwardPass pass;
  for (const char* name : all_losses) pass.requested_losses.insert(name);
  return pass;
}
Tensor loss_named(const ForwardPass& pass, const std::string& name) {
  for (const ForwardPass::Loss& loss : pass.losses)
    if (loss.name == name) return loss.value;
  return {};
}
Tensor parameter(Module& module, const std::string& path) {
  for (const NamedParameter& p : parameters_of(module))
    if (p.path == path) return p.parameter->value;
  FAIL("no parameter ", path);
  return {};
}
const Tensor zero = Tensor::zeros({1}, Dtype::f64), one = Tensor::full({1}, 1, Dtype::f64);

constexpr int64_t batch = 2, row_count = 5, heads = 2, size = 4;
constexpr int64_t lengths[] = {5, 3};

// Returns the keys that each query attends to, (B, 1, T, T); none for queries of padding.
Tensor visible_to_real_queries(bool causal) {
  std::vector<double> visible;
  for (const int64_t length : lengths)
    for (int64_t i = 0; i < row_count; ++i)
      for (int64_t j = 0; j < row_count; ++j) visible.push_back(i < length && j < length && (!causal || j <= i));
  return Tensor::from({batch, 1, row_count, row_count}, visible, Dtype::f64);
}

struct Rows {
  Tensor sum, entropy, visible;  // (B, H, T), (B, H, T), (B, 1, T)
};
// Returns the rows of softmax or of relu(s) * relu_factor / sqrt(n / 2); factors are (H, 1, 1).
Rows rows_of(const Tensor& q, const Tensor& k, bool causal, const Tensor& query_factor, const Tensor& relu_factor) {
  const Tensor visible = visible_to_real_queries(causal), n = sum(visible, {-1}, true);
  const Tensor s = matmul(permute(q, {0, 2, 1, 3}), permute(k, {0, 2, 3, 1})) * (1 / std::sqrt(size)) * query_factor;
  const Tensor w = relu_factor
                       ? where(visible, maximum(zero, s), zero) * relu_factor * reciprocal(sqrt(where(n, n, one) * 0.5))
                       : where(visible, exp(s), zero);
  const Tensor total = sum(w, {-1}, true), p = w / where(total, total, one);
  return {sum(w, {-1}), -sum(where(p, p * log(where(p, p, one)), zero), {-1}), n.reshape(Shape{batch, 1, row_count})};
}
Tensor counted_mean(const Tensor& x, const Tensor& counted) {
  return sum(where(counted, x, zero)) / sum(broadcast_to(heaviside(counted), x.shape()));
}

struct Leaves {
  Tensor q = random_tensor({batch, row_count, heads, size}, 1).set_requires_grad(),
         k = random_tensor({batch, row_count, heads, size}, 2).set_requires_grad(),
         v = random_tensor({batch, row_count, heads, size}, 3);
};
// Returns the named loss of this layer at the leaves.
Tensor loss_of(Sublayer& layer, const Leaves& x, const std::string& name) {
  ForwardPass pass = wanting();
  pass.lengths = whole({2}, {5, 3});
  dynamic_cast<AttentionLayer&>(layer).attend_heads({.query = x.q, .key = x.k, .value = x.v},
                                                    random_tensor({batch, row_count, heads * size}, 4), pass);
  const Tensor loss = loss_named(pass, name);
  REQUIRE(loss);
  return loss;
}
// Checks that both agree in value and in all gradients.
void check_same(const Tensor& loss, const Tensor& expected, const std::vector<Tensor>& leaves) {
  CHECK(expected.item() > 1e-3);
  CHECK(std::abs(loss.item() - expected.item()) <= 1e-12);
  std::vector<Tensor> gradients;
  for (const Tensor& x : leaves) Tensor(x).set_grad({});
  loss.backward();
  for (const Tensor& x : leaves) gradients.push_back(x.grad().clone());
  for (const Tensor& x : leaves) Tensor(x).set_grad({});
  expected.backward();
  for (size_t i = 0; i < leaves.size(); ++i) {
    CAPTURE(i);
    CHECK(max(abs(gradients[i].reshape(Shape{gradients[i].numel()})), 0).item() > 1e-6);
    CHECK(largest_difference(gradients[i], leaves[i].grad()) <= 1e-12);
  }
}

}  // namespace

TEST_CASE("relu_former's losses are their formulas over its own weights, in value and gradient") {
  for (const bool causal : {true, false}) {
    CAPTURE(causal);
    const auto layer = layer_of("relu_former", {.width = heads * size, .heads = heads, .causal = causal});
    const Leaves x;
    const Tensor rho = parameter(*layer, "log_gamma").set_requires_grad();
    const Rows rows = rows_of(x.q, x.k, causal, one, exp(-rho).reshape(Shape{heads, 1, 1}));
    const Tensor alive = heaviside(where(rows.visible, rows.sum, zero));
    check_same(loss_of(*layer, x, "normalization_loss"), counted_mean(abs(log(where(alive, rows.sum, one))), alive),
               {x.q, x.k, rho});
    Leaves even;  // positive, similar scores: row entropies exceed the margin
    even.q = (abs(even.q.detach()) + 0.5).detach().set_requires_grad();
    even.k = (abs(even.k.detach()) + 0.5).detach().set_requires_grad();
    const Rows again = rows_of(even.q, even.k, causal, one, one);
    const Tensor margin = log(where(again.visible, again.visible, one)) * 0.7;
    check_same(loss_of(*layer, even, "entropy_margin_loss"),
               counted_mean(maximum(again.entropy - margin, zero), again.visible), {even.q, even.k});
  }
}

TEST_CASE("softmax's entropy regularizer is its formula over its own weights, in value and gradient") {
  for (const bool causal : {true, false}) {
    CAPTURE(causal);
    const auto layer = layer_of("softmax(temperature=learned(0.7), entropy_threshold=learned(0.4))",
                                {.width = heads * size, .heads = heads, .causal = causal});
    parameter(*layer, "entropy_threshold").copy_from(Tensor::from({heads}, {0.3, 1.6}, Dtype::f64));
    const Leaves x;
    const Tensor theta = parameter(*layer, "entropy_threshold").set_requires_grad(),
                 t = parameter(*layer, "temperature").set_requires_grad();
    const Rows rows = rows_of(x.q, x.k, causal, reciprocal(t).reshape(Shape{heads, 1, 1}), {});
    const Tensor real = heaviside(rows.visible), count = sum(real);
    const Tensor ceiling = sum(log(where(real, rows.visible, one))) / count;
    const Tensor excess = sum(where(real, rows.entropy, zero), {0, 2}) / count - theta * ceiling;
    const Tensor active = heaviside(abs(excess) - ceiling * 0.2);
    check_same(loss_of(*layer, x, "entropy_regularizer"), mean(where(active, excess * excess, zero)),
               {x.q, x.k, theta, t});
  }
}

TEST_CASE("the span penalty of a dynamic span is S times the mean over real tokens of sigmoid(v x + b)") {
  const auto layer = layer_of("softmax(span=dynamic_span(6, R=3))", {.width = heads * size, .heads = heads});
  const Tensor weight = parameter(*layer, "span.share_of_token.weight").set_requires_grad(),
               bias = parameter(*layer, "span.share_of_token.bias").set_requires_grad();
  const Tensor loss = loss_of(*layer, {}, "span_penalty");
  const Tensor x = random_tensor({batch, row_count, heads * size}, 4);
  const Tensor z = matmul(x.reshape(Shape{batch * row_count, heads * size}), weight, {.b = true});
  const Tensor probability = reciprocal(exp(-(z + bias)) + 1.0);  // (B T, H)
  const Tensor real = Tensor::from({batch * row_count, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, Dtype::f64);
  check_same(loss, counted_mean(probability, real) * 6.0, {weight, bias});
}

TEST_CASE("the entropy margin is 0.7 ln n with n visible keys, regardless of the setting length") {
  const Leaves x;
  const AttentionLayerOptions options{.width = heads * size, .heads = heads};
  const double by_keys = loss_of(*layer_of("relu_former", options), x, "entropy_margin_loss").item();
  CHECK(loss_of(*layer_of("relu_former(length=fixed(1000))", options), x, "entropy_margin_loss").item() ==
        doctest::Approx(by_keys).epsilon(1e-12));
}

namespace {

struct Losses {
  std::map<std::string, double> values;
  Tensor dx;
};
Losses losses_and_gradient(Sublayer& layer, const Tensor& x, const Tensor& of_lengths, const Tensor& documents) {
  ForwardPass pass = wanting();
  pass.lengths = of_lengths, pass.document_ids = documents;
  const Tensor leaf = x.clone().set_requires_grad();
  layer(leaf, pass);
  Losses all;
  Tensor total;
  for (const ForwardPass::Loss& loss : pass.losses) {
    all.values[loss.name] += loss.value.item();
    total = total ? total + loss.value : loss.value;
  }
  total.backward();
  all.dx = leaf.grad();
  return all;
}

}  // namespace

TEST_CASE("padding and packing do not change the losses of an attention or their gradients") {
  constexpr int64_t width = heads * size;
  const Tensor first = random_tensor({1, 5, width}, 1), second = random_tensor({1, 3, width}, 2);
  const auto padded = [&](int64_t to) {
    const auto fill = [&](const Tensor& x, int seed) {
      return to > x.size(1) ? concatenate({x, random_tensor({1, to - x.size(1), width}, seed)}, 1) : x;
    };
    return concatenate({fill(first, 7), fill(second, 8)}, 0);
  };
  for (const char* spec :
       {"relu_former", "relu_former(length=fixed(7), persistent=2)", "relu_former(persistent=slots(2, split=yes))",
        "softmax(temperature=learned(0.7))", "softmax(persistent=2, attend_to_self=no)",
        "softmax(persistent=slots(2, split=yes))", "softmax(span=dynamic_span(6, R=3))",
        "softmax(span=adaptive_span(6, R=3), entropy_threshold=learned(0.1))"})
    for (const bool causal : {true, false}) {
      const std::string name = spec;
      CAPTURE(name);
      CAPTURE(causal);
      const auto layer = layer_of(spec, {.width = width, .heads = heads, .causal = causal});
      const Losses tight = losses_and_gradient(*layer, padded(5), whole({2}, {5, 3}), {}),
                   loose = losses_and_gradient(*layer, padded(9), whole({2}, {5, 3}), {}),
                   packed = losses_and_gradient(*layer, concatenate({first, second}, 1), {},
                                                whole({1, 8}, {4, 4, 4, 4, 4, 6, 6, 6}));
      for (const auto& [which, value] : tight.values) {
        const std::string loss = which;
        CAPTURE(loss);
        CHECK(loose.values.at(which) == doctest::Approx(value).epsilon(1e-12));
        CHECK(packed.values.at(which) == doctest::Approx(value).epsilon(1e-12));
      }
      const Tensor dx = tokens(tight.dx, 0, 0, 5), dx_second = tokens(tight.dx, 1, 0, 3);
      CHECK(largest_difference(dx, tokens(loose.dx, 0, 0, 5)) <= 1e-13);
      CHECK(largest_difference(dx_second, tokens(loose.dx, 1, 0, 3)) <= 1e-13);
      CHECK(largest_difference(dx, tokens(packed.dx, 0, 0, 5)) <= 1e-13);
      CHECK(largest_difference(dx_second, tokens(packed.dx, 0, 5, 8)) <= 1e-13);
      CHECK(largest_difference(tokens(loose.dx, 1, 3, 9), Tensor::zeros({1, 6, width}, Dtype::f64)) == 0);
    }
}

TEST_CASE("cross attention: every query counts in the losses, for encoder outputs of any length") {
  const auto layer = layer_of("relu_former", {.width = 8, .heads = 2, .encoder_width = 8});
  const Tensor x = random_tensor({2, 5, 8}, 1), encoder_output = random_tensor({2, 9, 8}, 2);
  std::vector<double> values;
  for (const int64_t keys : {5, 9}) {  // equal numbers of keys and queries, and more keys
    ForwardPass pass = wanting();
    pass.encoder_output = slice(encoder_output, 1, 0, keys), pass.encoder_lengths = whole({2}, {2, 5});
    (*layer)(x, pass);
    values.push_back(loss_named(pass, "normalization_loss").item());
  }
  CHECK(values[0] == doctest::Approx(values[1]).epsilon(1e-13));
}
