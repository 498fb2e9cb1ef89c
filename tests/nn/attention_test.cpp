// What attentions promise: masks, lengths, documents, and the identities between variants.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

TEST_CASE("padding changes no real token's output or gradient") {
  const int64_t real = 5, padded = 9, width = 8;
  for (const std::string& spec : attention_specs())
    for (const bool causal : {true, false}) {
      if (!causal && needs_causal(spec)) continue;
      INFO(spec, causal ? ", causal" : ", full");
      const auto layer = layer_of(spec, {.width = width, .heads = 2, .causal = causal});
      const Tensor x = random_tensor({1, padded, width}, 1), real_dy = random_tensor({1, real, width}, 2);
      const Tensor dy = concatenate({real_dy, Tensor::zeros({1, padded - real, width}, Dtype::f64)}, 1);
      Pass short_pass, padded_pass;
      padded_pass.lengths = whole({1}, {5});
      const LayerResult alone = run(*layer, tokens(x, 0, 0, real), real_dy, short_pass),
                        in = run(*layer, x, dy, padded_pass);
      CHECK(largest_difference(alone.y, tokens(in.y, 0, 0, real)) <= 1e-13);
      CHECK(largest_difference(alone.dx, tokens(in.dx, 0, 0, real)) <= 1e-13);
    }
}

TEST_CASE("length=padded_length depends on the padding, and on nothing else that does") {
  const auto layer = layer_of("pointwise(relu, length=padded_length)", {.width = 8, .heads = 2, .causal = false});
  const Tensor x = random_tensor({1, 9, 8}, 1);
  Pass short_pass, padded_pass;
  padded_pass.lengths = whole({1}, {5});
  const NoGrad guard;
  const Tensor alone = (*layer)(tokens(x, 0, 0, 5), short_pass), in = tokens((*layer)(x, padded_pass), 0, 0, 5);
  CHECK(largest_difference(alone, in) > 1e-3);
}

TEST_CASE("packed documents equal separate documents") {
  const int64_t width = 8;
  for (const std::string& spec : attention_specs())
    for (const bool causal : {true, false}) {
      if (!causal && needs_causal(spec)) continue;
      INFO(spec, causal ? ", causal" : ", full");
      const auto layer = layer_of(spec, {.width = width, .heads = 2, .causal = causal});
      const Tensor x = random_tensor({1, 9, width}, 1), dy = random_tensor({1, 9, width}, 2);
      Pass plain, packed;
      packed.documents = whole({1, 9}, {4, 4, 4, 4, 7, 7, 7, 7, 7});
      const LayerResult all = run(*layer, x, dy, packed);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 4), std::pair<int64_t, int64_t>(4, 9)}) {
        const LayerResult one = run(*layer, tokens(x, 0, begin, end), tokens(dy, 0, begin, end), plain);
        CHECK(largest_difference(one.y, tokens(all.y, 0, begin, end)) <= 1e-13);
        CHECK(largest_difference(one.dx, tokens(all.dx, 0, begin, end)) <= 1e-13);
      }
    }
}

TEST_CASE("a fully masked row gives 0 and gradient 0, whatever stands in the masked values") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* function : {"", "relu", "sigmoid", "identity"}) {
    INFO("function '", function, "'");
    const Tensor q = random_tensor({1, 3, 2, 5}, 1).set_requires_grad();
    const Tensor k = Tensor::full({1, 4, 2, 5}, nan, Dtype::f64).set_requires_grad(),
                 v = Tensor::full({1, 4, 2, 5}, nan, Dtype::f64).set_requires_grad();
    const ReadingOptions nothing{.causal = false, .lengths = whole({1}, {0})};
    const std::optional<Activation> f = function[0] ? std::optional<Activation>(function) : std::nullopt;
    for (const bool simple : {false, true}) {
      std::unique_ptr<SimpleOperations> guard;
      if (simple) guard = std::make_unique<SimpleOperations>();
      for (const Tensor& x : {q, k, v}) x.set_grad({});
      const Tensor o = attend({.query = q, .key = k, .value = v}, nothing, f).output;
      CHECK(largest_difference(o, Tensor::zeros_like(o)) == 0);
      backward(o, Tensor::full(o.shape(), 1, Dtype::f64));
      for (const Tensor& x : {q, k, v}) CHECK(largest_difference(x.grad(), Tensor::zeros_like(x)) == 0);
    }
  }
}

TEST_CASE("naive(F) equals pointwise(F, alpha=0)") {
  const AttentionOptions options{.width = 8, .heads = 2};
  const Tensor x = random_tensor({2, 7, 8}, 1);
  for (const char* f : {"relu", "sigmoid", "identity"}) {
    Pass pass;
    const NoGrad guard;
    CHECK(largest_difference((*layer_of(std::string("naive(") + f + ")", options))(x, pass),
                             (*layer_of(std::string("pointwise(") + f + ", alpha=0)", options))(x, pass)) == 0);
  }
}

TEST_CASE("linear(identity) equals pointwise(identity, alpha=0)") {
  const Tensor x = random_tensor({2, 7, 8}, 1);
  for (const bool causal : {true, false}) {
    const AttentionOptions options{.width = 8, .heads = 2, .causal = causal};
    Pass pass;
    const NoGrad guard;
    CHECK(largest_difference((*layer_of("linear(identity)", options))(x, pass),
                             (*layer_of("pointwise(identity, alpha=0)", options))(x, pass)) <= 1e-13);
  }
}

TEST_CASE("with equal keys, alpha = 1 reads the mean of the values times F of the score") {
  const Tensor q = random_tensor({1, 6, 1, 4}, 1), v = random_tensor({1, 6, 1, 4}, 3);
  const Tensor k = broadcast_to(random_tensor({1, 1, 1, 4}, 2), {1, 6, 1, 4});
  const Activation relu("relu");
  const Tensor o = attend({.query = q, .key = k, .value = v}, {.causal = false}, relu).output / 6.0;
  const Tensor score = sum(q * k, {-1}, true);
  CHECK(largest_difference(o, relu(score) * mean(v, {1}, true)) <= 1e-14);
}

TEST_CASE("relu_former with gamma sqrt(n / 2) = 1 is the naive attention") {
  const AttentionOptions options{.width = 8, .heads = 2};
  const auto former = layer_of("relu_former(length=fixed(2))", options), naive = layer_of("naive(relu)", options);
  for (const NamedParameter& p : parameters_of(*former))
    if (p.path == "log_gamma") p.parameter->value.copy_from(Tensor::zeros({2, 1}, Dtype::f64));
  Pass pass;
  const NoGrad guard;
  const Tensor x = random_tensor({2, 7, 8}, 1);
  const Tensor y = (*naive)(x, pass);  // the factor 1 / (gamma sqrt(n / 2)) is 1 to an ULP
  CHECK(largest_difference((*former)(x, pass), y) <= 1e-15 * max(absolute(y).reshape(Shape{y.count()}), 0).item());
}

TEST_CASE("a factor on the scores scales relu's weights and leaves their entropy, softmax's it changes") {
  const Tensor q = random_tensor({2, 7, 2, 5}, 1), k = random_tensor({2, 7, 2, 5}, 2),
               v = random_tensor({2, 7, 2, 5}, 3);
  const Reading r{.query = q, .key = k, .value = v};
  const auto read = [&](double scale, const std::optional<Activation>& f) {
    return attend(r, {.scale = scale}, f, true);
  };
  const Activation relu("relu");
  const Read once = read(1, relu), thrice = read(3, relu);
  CHECK(largest_difference(once.output * 3.0, thrice.output) <= 1e-13);
  CHECK(largest_difference(once.entropy, thrice.entropy) <= 1e-13);
  CHECK(largest_difference(read(1, {}).entropy, read(3, {}).entropy) > 0.1);
}

TEST_CASE("a row of score gradients adds up to 0 for softmax, sparsemax and entmax, and not for pointwise weights") {
  // A common shift of the keys along q moves all scores of a row alike: its gradient is the sum of ds.
  const AttentionOptions options{.width = 6, .heads = 1, .bias = false};
  for (const char* spec : {"softmax", "softmax(span=adaptive_span(5, R=3))", "sparsemax", "entmax15", "pointwise(relu)",
                           "pointwise(sigmoid)"}) {
    INFO(spec);
    const bool is_pointwise = std::string(spec).starts_with("pointwise");
    const Tensor bias = Tensor::zeros({1, 12}, Dtype::f64).set_requires_grad();
    struct Shift final : Position {  // adds one learned number to every score
      Tensor bias;
      Tensor distance_bias(int64_t distances) const override { return slice(bias, 1, 0, distances); }
      bool acts_on_scores() const override { return true; }
    } shift;
    shift.bias = bias;
    AttentionOptions with = options;
    with.position = &shift;
    const auto shifted = layer_of(spec, with);
    Pass pass;
    backward((*shifted)(random_tensor({1, 7, 6}, 1), pass), random_tensor({1, 7, 6}, 2));
    const double total = sum(bias.grad()).item();
    if (is_pointwise)
      CHECK(std::abs(total) > 1e-3);
    else
      CHECK(std::abs(total) <= 1e-12);
  }
}
