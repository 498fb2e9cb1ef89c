// Properties of attentions: masks, lengths, documents, and identities between variants.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/support/attention_layers.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing;

namespace {

// Returns all specs, with every `length` that padding must not change.
std::vector<std::string> specs_with_lengths() {
  std::vector<std::string> all = attention_specs();
  for (const char* length : {"keys_visible", "row_index", "fixed(3)"})
    for (const char* rule : {"pointwise(sigmoid, ", "relu_former(", "gau("})
      all.push_back(rule + std::string("length=") + length + ")");
  return all;
}

// Returns the results of five tokens alone, and followed by four tokens of padding.
std::pair<LayerResult, LayerResult> alone_and_padded(Sublayer& layer, const ForwardPass& common = {}) {
  const int64_t real = 5, padded = 9, width = 8;
  const Tensor x = random_tensor({1, padded, width}, 1), real_dy = random_tensor({1, real, width}, 2);
  const Tensor dy = concatenate({real_dy, Tensor::zeros({1, padded - real, width}, Dtype::f64)}, 1);
  ForwardPass padded_pass = common;
  padded_pass.lengths = whole({1}, {5});
  const LayerResult alone = run(layer, tokens(x, 0, 0, real), real_dy, common), in = run(layer, x, dy, padded_pass);
  return {alone, {tokens(in.y, 0, 0, real), tokens(in.dx, 0, 0, real)}};
}

}  // namespace

TEST_CASE("padding changes no real token's output or gradient") {
  for (const std::string& spec : specs_with_lengths())
    for (const int64_t kv_heads : {1, 2})
      for (const bool causal : {true, false}) {
        if (!causal && needs_causal(spec)) continue;
        INFO(spec, causal ? ", causal" : ", full", ", kv heads ", kv_heads);
        const auto layer = layer_of(spec, {.width = 8, .heads = 2, .kv_heads = kv_heads, .causal = causal});
        const auto [alone, padded] = alone_and_padded(*layer);
        CHECK(largest_difference(alone.y, padded.y) <= 1e-13);
        CHECK(largest_difference(alone.dx, padded.dx) <= 1e-13);
      }
}

TEST_CASE("length=padded_length depends on the padding") {
  // The weights count nine keys instead of five, so the head output (and y, linear in it) shrinks.
  const double longer = 9.0 / 5;
  const std::pair<const char*, double> factors[] = {
      {"pointwise(relu, length=padded_length)", longer},
      {"pointwise(sigmoid, alpha=0.5, length=padded_length)", std::sqrt(longer)},
      {"relu_former(length=padded_length)", std::sqrt(longer)},
      {"gau(length=padded_length)", longer * longer}};
  for (const auto& [text, factor] : factors)
    for (const bool causal : {true, false}) {
      const std::string spec = text;
      CAPTURE(spec);
      CAPTURE(causal);
      const auto layer = layer_of(spec, {.width = 8, .heads = 2, .causal = causal, .bias = false});
      const auto [alone, padded] = alone_and_padded(*layer);
      CHECK(largest_difference(alone.y, padded.y) > 1e-3);
      CHECK(largest_difference(alone.y, padded.y * factor) <= 1e-13);
      CHECK(largest_difference(alone.dx, padded.dx * factor) <= 1e-13);
    }
}

TEST_CASE("cross attention: padding of encoder output and queries changes no real token") {
  const int64_t width = 8, encoder_width = 6;
  for (const std::string& spec : specs_with_lengths()) {
    if (spec.starts_with("gau") || spec.find("span=") != std::string::npos || needs_causal(spec)) continue;
    for (const int64_t kv_heads : {1, 2}) {
      INFO(spec, ", kv heads ", kv_heads);
      const auto layer =
          layer_of(spec, {.width = width, .heads = 2, .kv_heads = kv_heads, .encoder_width = encoder_width});
      const Tensor x = random_tensor({1, 6, width}, 1), encoder_output = random_tensor({1, 7, encoder_width}, 3);
      const auto pass_over = [&](int64_t queries, int64_t keys) {
        const Tensor m = slice(encoder_output, 1, 0, keys).clone().set_requires_grad();
        ForwardPass pass;
        pass.encoder_output = m, pass.lengths = whole({1}, {4});
        if (keys > 5) pass.encoder_lengths = whole({1}, {5});
        const Tensor real_dy = random_tensor({1, 4, width}, 2),
                     none = Tensor::zeros({1, queries - 4, width}, Dtype::f64);
        const LayerResult all =
            run(*layer, tokens(x, 0, 0, queries), queries > 4 ? concatenate({real_dy, none}, 1) : real_dy, pass);
        return std::array<Tensor, 3>{tokens(all.y, 0, 0, 4), tokens(all.dx, 0, 0, 4), m.grad()};
      };
      const auto alone = pass_over(4, 5), padded = pass_over(6, 7);
      CHECK(largest_difference(alone[0], padded[0]) <= 1e-13);
      CHECK(largest_difference(alone[1], padded[1]) <= 1e-13);
      CHECK(largest_difference(alone[2], tokens(padded[2], 0, 0, 5)) <= 1e-13);
      CHECK(largest_difference(tokens(padded[2], 0, 5, 7), Tensor::zeros({1, 2, encoder_width}, Dtype::f64)) == 0);
    }
  }
}

TEST_CASE("packed documents equal separate documents") {
  const int64_t width = 8;
  for (const std::string& spec : specs_with_lengths())
    for (const bool causal : {true, false}) {
      if (!causal && needs_causal(spec)) continue;
      INFO(spec, causal ? ", causal" : ", full");
      const auto layer = layer_of(spec, {.width = width, .heads = 2, .kv_heads = causal ? 1 : 2, .causal = causal});
      const Tensor x = random_tensor({1, 9, width}, 1), dy = random_tensor({1, 9, width}, 2);
      ForwardPass plain, packed;
      packed.document_ids = whole({1, 9}, {4, 4, 4, 4, 7, 7, 7, 7, 7});
      const LayerResult all = run(*layer, x, dy, packed);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 4), std::pair<int64_t, int64_t>(4, 9)}) {
        const LayerResult one = run(*layer, tokens(x, 0, begin, end), tokens(dy, 0, begin, end), plain);
        CHECK(largest_difference(one.y, tokens(all.y, 0, begin, end)) <= 1e-13);
        CHECK(largest_difference(one.dx, tokens(all.dx, 0, begin, end)) <= 1e-13);
      }
    }
}

TEST_CASE("a fully masked row gives 0 and gradient 0, even if the masked values are NaN") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* function : {"", "relu", "sigmoid", "identity"}) {
    INFO("function '", function, "'");
    const Tensor q = random_tensor({1, 3, 2, 5}, 1).set_requires_grad();
    const Tensor k = Tensor::full({1, 4, 2, 5}, nan, Dtype::f64).set_requires_grad(),
                 v = Tensor::full({1, 4, 2, 5}, nan, Dtype::f64).set_requires_grad();
    const AttentionOptions nothing{.mask = {.causal = false, .lengths = whole({1}, {0})}};
    const std::optional<Activation> f = function[0] ? std::optional<Activation>(function) : std::nullopt;
    for (const bool simple : {false, true}) {
      std::unique_ptr<ReferenceMode> guard;
      if (simple) guard = std::make_unique<ReferenceMode>();
      for (const Tensor& x : {q, k, v}) x.set_grad({});
      const Tensor o = attention({.query = q, .key = k, .value = v}, nothing, f).output;
      CHECK(largest_difference(o, Tensor::zeros_like(o)) == 0);
      backward(o, Tensor::full(o.shape(), 1, Dtype::f64));
      for (const Tensor& x : {q, k, v}) CHECK(largest_difference(x.grad(), Tensor::zeros_like(x)) == 0);
    }
  }
}
