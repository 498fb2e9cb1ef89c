// Every attention compared with PyTorch, output and all gradients. tests/golden/variants.py
// implements the papers' equations independently, so that a misreading is found.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "tests/support/golden_cases.h"
#include "tests/support/parameters.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::golden_cases;
using orrery::testing::GoldenCase;
using orrery::testing::largest_difference;
using orrery::testing::parameter_at;

namespace {

// Returns the layer's path for a parameter of the golden files.
std::string path_of(const std::string& parameter, const std::string& spec) {
  static const std::map<std::string, std::string> paths = {{"temperature", "temperature"},
                                                           {"alpha", "alpha"},
                                                           {"rho", "log_gamma"},
                                                           {"z", "span.share"},
                                                           {"kappa", "slots.key"},
                                                           {"nu", "slots.value"},
                                                           {"span_bias", "span.share_of_token.bias"},
                                                           {"query_weight", "query_norm.weight"},
                                                           {"key_weight", "key_norm.weight"},
                                                           {"span_weight", "span.share_of_token.weight"},
                                                           {"weight", "gain"},
                                                           {"query_gain", "query_gain"},
                                                           {"query_bias", "query_bias"},
                                                           {"key_gain", "key_gain"},
                                                           {"key_bias", "key_bias"},
                                                           {"output", "output.weight"}};
  if (parameter == "gate") return spec.starts_with("rela") ? "opening" : "gate.weight";
  return paths.at(parameter);
}
// (Hk, N, D) in the file, (N, Hk, D) here; other parameters differ by axes of size 1 at most.
Tensor as_here(const std::string& parameter, const Tensor& x, const Shape& shape) {
  if (parameter == "kappa" || parameter == "nu") return transpose(x, 0, 1);
  return x.numel() == shape.numel() ? x.reshape(shape) : x;
}

struct Made {
  std::unique_ptr<Position> position;
  std::unique_ptr<Sublayer> layer;
  std::map<std::string, Parameter*> parameters;  // by golden name
};

Made make(const GoldenCase& test, const Spec& spec, const AttentionLayerOptions& plain) {
  Made made;
  AttentionLayerOptions options = plain;
  if (!test.position.empty()) {
    made.position = make_position(parse_spec(test.position), {.context = 32,
                                                              .width = options.width,
                                                              .heads = options.heads,
                                                              .head_size = test.number("head_size", 6),
                                                              .causal = options.causal});
    convert(*made.position, Dtype::f64);
    options.position = made.position.get();
  }
  made.layer = make_attention(spec, options);
  name_paths(*made.layer);
  convert(*made.layer, Dtype::f64);
  for (const std::string& name : test.parameters) {
    const bool of_position = name == "relative" || name == "bias" || name == "factor";
    Parameter* const p = of_position ? parameters_of(*made.position).at(0).parameter
                                     : parameter_at(*made.layer, path_of(name, test.spec));
    made.parameters[name] = p;
    p->value = as_here(name, test.tensor(name), p->value.shape()).clone().set_requires_grad();
  }
  return made;
}

void check_gradient(const GoldenCase& test, const std::string& name, const Tensor& leaf) {
  INFO("gradient of ", name);
  REQUIRE(leaf.grad());
  CHECK(largest_difference(leaf.grad(), as_here(name, test.tensor("d" + name), leaf.shape())) <= 1e-11);
}

// Returns 1 for real queries and 0 for padding, whose output is undefined.
Tensor live_rows(const GoldenCase& test, int64_t batch, int64_t queries, bool cross) {
  std::vector<double> live;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < queries; ++t)
      live.push_back(cross || !test.has("lengths") || t < test.tensor("lengths").data<int32_t>()[b]);
  return Tensor::from(Shape{batch, queries, 1}, live, Dtype::f64);
}

void check_rule(const GoldenCase& test) {
  const Tensor q = test.leaf("q"), k = test.leaf("k"), v = test.leaf("v");
  const int64_t batch = q.size(0), queries = q.size(1), keys = k.size(1), heads = q.size(2);
  const bool causal = test.yes("causal"), cross = !causal && queries != keys;
  const int64_t cached = causal ? keys - queries : 0;
  const Tensor x = test.has("x") ? test.leaf("x") : Tensor::zeros({batch, queries, heads * q.size(3)}, Dtype::f64);
  Made made = make(test, parse_spec(test.spec),
                   {.width = heads * q.size(3),
                    .heads = heads,
                    .kv_heads = k.size(2),
                    .causal = causal,
                    .bias = false,
                    .encoder_width = cross ? heads * q.size(3) : 0});
  ForwardPass pass;
  Cache cache;
  if (test.has("lengths")) (cross ? pass.encoder_lengths : pass.lengths) = test.tensor("lengths");
  if (test.has("documents")) pass.document_ids = test.tensor("documents");
  AttentionInputs reading{.query = q, .key = k, .value = v};
  if (cached > 0) {
    cache.length = cached;
    cache.entries[made.layer->path()] = {slice(k, 1, 0, cached), slice(v, 1, 0, cached)};
    reading.key = slice(k, 1, cached, keys), reading.value = slice(v, 1, cached, keys);
    pass.cache = &cache;
  }
  const Tensor y = dynamic_cast<AttentionLayer&>(*made.layer).attend_heads(reading, x, pass);
  const Tensor expected = test.tensor("y").reshape(y.shape()), live = live_rows(test, batch, queries, cross);
  CHECK(largest_difference(y * live, expected * live) <= 1e-12);
  backward(y, test.tensor("dy").reshape(y.shape()));
  check_gradient(test, "q", q), check_gradient(test, "k", k), check_gradient(test, "v", v);
  if (test.has("x")) check_gradient(test, "x", x);
  for (const auto& [name, parameter] : made.parameters) check_gradient(test, name, parameter->value);
}

void check_unit(GoldenCase test) {
  Spec spec = parse_spec(test.spec);
  set_item(spec, "size", parse_spec("6"));
  set_item(spec, "inner", parse_spec("9"));
  const std::vector<std::string> parts = {"gate", "value", "shared"};  // packed in one matrix here
  std::erase_if(test.parameters,
                [&](const std::string& name) { return std::count(parts.begin(), parts.end(), name) > 0; });
  Made made = make(test, spec, {.width = 5, .heads = 1, .causal = test.yes("causal"), .bias = false});
  const auto joined = [&](const std::string& prefix) {
    return concatenate({test.tensor(prefix + "gate"), test.tensor(prefix + "value"), test.tensor(prefix + "shared")},
                       0);
  };
  const Tensor input = joined("").clone().set_requires_grad(), x = test.leaf("x");
  parameter_at(*made.layer, "input.weight")->value = input;
  ForwardPass pass;
  if (test.has("lengths")) pass.lengths = test.tensor("lengths");
  if (test.has("documents")) pass.document_ids = test.tensor("documents");
  const Tensor y = (*made.layer)(x, pass), live = live_rows(test, x.size(0), x.size(1), false);
  CHECK(largest_difference(y * live, test.tensor("y") * live) <= 1e-12);
  backward(y, test.tensor("dy"));
  check_gradient(test, "x", x);
  CHECK(largest_difference(input.grad(), joined("d")) <= 1e-11);
  for (const auto& [name, parameter] : made.parameters) check_gradient(test, name, parameter->value);
}

// Returns the reason to skip a golden case, or "".
std::string reason_to_skip(const std::string& name) {
  static const std::map<std::string, std::string> reasons = {
      {"rela_head", "stored for both readings of the paper; the layer follows the authors' code, all heads together"},
      {"rela_head_gate", "as rela_head"},
      {"softmax_rotary_cache", "rotates all keys in one pass; a cache holds rotated keys, which its own tests cover"}};
  const auto found = reasons.find(name);
  return found == reasons.end() ? "" : found->second;
}

}  // namespace

TEST_CASE("every attention agrees with PyTorch, output and every gradient") {
  const std::map<std::string, int> expected = {{"attentions.safetensors", 64 - 3},
                                               {"attention_spans.safetensors", 56},
                                               {"attention_linear.safetensors", 27},
                                               {"attention_soft_cap.safetensors", 2}};
  for (const auto& entry : expected) {
    const std::string& file = entry.first;
    int checked = 0;
    for (const GoldenCase& test : golden_cases(file)) {
      INFO(test.name, ": ", test.spec, ", position ", test.position);
      if (!reason_to_skip(test.name).empty()) continue;
      if (test.spec.starts_with("gau"))
        check_unit(test);
      else
        check_rule(test);
      ++checked;
    }
    INFO(file);
    CHECK(checked == entry.second);
  }
}
