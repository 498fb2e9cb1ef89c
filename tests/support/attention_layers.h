// Attention layers for tests: every registered one, with random parameters, forward and backward.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "tests/support/random_tensors.h"

namespace orrery::testing {

inline Tensor whole(const Shape& shape, const std::vector<int32_t>& values) { return Tensor::from(shape, values); }

// Returns an f64 layer with random parameters within their bounds. gau uses its own head size.
inline std::unique_ptr<nn::Sublayer> layer_of(const std::string& spec, nn::AttentionLayerOptions options) {
  if (options.context == 0) options.context = 64;
  std::unique_ptr<nn::Sublayer> layer = nn::make_attention(parse_spec(spec), options);
  name_paths(*layer);
  convert(*layer, Dtype::f64);
  int seed = 100;
  for (const nn::NamedParameter& p : parameters_of(*layer)) {
    nn::Parameter& one = *p.parameter;
    const Tensor random = random_tensor(one.value.shape(), ++seed);
    if (std::isfinite(one.min_value) && std::isfinite(one.max_value))
      one.value.copy_from(Tensor::full(one.value.shape(), 0.4 * one.min_value + 0.6 * one.max_value, Dtype::f64));
    else if (std::isfinite(one.min_value))
      one.value.copy_from(Tensor::full(one.value.shape(), one.min_value + 0.8, Dtype::f64));
    else
      one.value.copy_from(random * 0.5);
  }
  return layer;
}

// Returns every registered attention, and specs with further settings.
inline std::vector<std::string> attention_specs() {
  std::vector<std::string> all = nn::attentions().names();
  for (const char* more :
       {"pointwise(sigmoid)", "pointwise(softplus, alpha=learned(0.5), length=row_index)",
        "pointwise(gelu, length=fixed(5))", "linear(exp, normalize=yes)", "softmax(span=adaptive_span(6, R=3))",
        "pointwise(relu, span=dynamic_span(6, R=3), persistent=2)", "softmax(persistent=slots(3, split=yes))",
        "relu_former(length=row_index, persistent=4)", "softmax(gate=silu, qk_norm=layer, soft_cap=2)",
        "pointwise(prelu, gate=prelu)", "relu_former(function=xielu, parameters_per=layer, persistent=4)"})
    all.push_back(more);
  return all;
}
inline bool needs_causal(const std::string& spec) { return spec.find("row_index") != std::string::npos; }

struct LayerResult {
  Tensor y, dx;
};
inline LayerResult run(nn::Sublayer& layer, const Tensor& x, const Tensor& dy, const nn::ForwardPass& given) {
  nn::ForwardPass pass = given;
  const Tensor leaf = x.clone().set_requires_grad();
  const Tensor y = layer(leaf, pass);
  backward(y, dy);
  return {y.detach(), leaf.grad()};
}
inline Tensor tokens(const Tensor& x, int64_t sequence, int64_t begin, int64_t end) {
  return slice(x.slice(sequence, sequence + 1), 1, begin, end);
}

}  // namespace orrery::testing
