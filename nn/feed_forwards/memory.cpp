// Feed-forward as a key-value memory: keys match patterns of x, the function maps scores to
// weights, y is the weighted sum of the values. Geva et al. 2020, arXiv:2012.14913; with softmax
// and a layer normalization after it: A Study on ReLU and Softmax in Transformer, arXiv:2302.06461.
//   p = x K^T + b_K,   a = F(p),               y = a V + b_V + r         x (R, C), K and V (S, C), residual r
//   p = scale x K^T,   a = softmax(p) over S,  y = a V + r,  or LN(a V) + r
// With g = dy, for F:        da = g V^T,   dp = F'(p) da,   db_K and db_V: sums of the rows of dp and g
// for softmax:               dp = a (da - sum_s a da)        as in the backward of softmax
// for both:                  dV = a^T g,   dK = scale dp^T x,   dx = scale dp K
// Neither formula is implemented here. With F this is the operation of dense.cpp with W_in = K and
// W_out = V^T. With softmax it is attention of one head of C channels to slots, without a context
// (engine/attention_formula/problem.h). Saved for backward with F: x, p and V^T; with softmax: x,
// a V and the log-sum-exp of each row, no (R, S) array; with norm=layer also what this saves.
//
// Conventions: scale is 1 by default, because no source states 1 / sqrt(C). The softmax form has no
// biases. Initial values are those of a dense layer, K N(0, 0.02^2), V N(0, 0.02^2 / (2 layers)),
// so that a comparison of functions and norms changes one thing. With scores of variance 1, y of
// softmax then has variance e / S Var V: 2.7e-7 for S = 4096 and values of 0.02. The usual epsilon
// of 1e-5 is far larger: it would divide by epsilon instead of normalizing. So epsilon is 1e-12
// here. Larger values would allow a larger one, but relatively smaller steps.
#include "nn/feed_forwards/base/conversions.h"
#include "nn/feed_forwards/base/hidden.h"
#include "nn/feed_forwards/base/pointwise.h"

#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

class Memory final : public SlotFeedForward {
 public:
  struct Settings {
    Spec function = parse_spec("relu");
    int64_t d_ff = 0;
    std::string norm = "none";
    double scale = 1, epsilon = 1e-12;
    template <class V>
    void visit(V& v) {
      v("function", function, "softmax over the slots, or any activation");
      v("d_ff|slots", d_ff, "number of keys and values; 0: the block's d_ff", between(0, 262144));
      v("norm", norm, "normalization of the output, before the residual is added", one_of({"none", "layer|layernorm"}));
      v("scale", scale, "factor of the scores, for softmax only", above(0, 1e6));
      v("epsilon", epsilon, "added to the variance by norm=layer", above(0, 100));
    }
  };
  static inline const Info info{.name = "memory",
                                .formula = "F(x K^T + b_K) V + b_V, or softmax(scale x K^T) V",
                                .source = "Geva et al. 2020, arXiv:2012.14913; arXiv:2302.06461",
                                .parameters = "K N(0, 0.02^2), V N(0, 0.02^2 / (2 layers)), biases 0, norm weight 1",
                                .saves = "x, x K^T + b_K, V^T; with softmax x, a V, log-sum-exp of each row"};

  Memory(const Spec& spec, const FeedForwardOptions& options) : Memory(settings_from<Settings>(spec), options) {}
  Memory(const Settings& settings, const FeedForwardOptions& o) : scale_(settings.scale) {
    const Shape shape{settings.d_ff ? settings.d_ff : o.d_ff, o.width};
    key_ = Parameter(shape, o.initial_weights.hidden(o.width, shape[0], o.layers));
    value_ = Parameter(shape, o.initial_weights.residual_output(shape[0], o.width, o.layers));
    if (settings.function.name == "softmax") {
      check(settings.function.items.empty(), "memory: '", settings.function,
            "': softmax takes no settings here; use memory(softmax, scale=...)");
    } else {
      check_function(settings.function.name);
      function_.emplace(Activation(settings.function), o.shared_activation);
      check(scale_ == 1, "memory: scale (", print_number(scale_), ") is for softmax only; with ",
            function_->activation().spec(), " it must be 1");
      if (o.bias) {
        key_bias_ = Parameter(Shape{shape[0]}, constant(0));
        value_bias_ = Parameter(Shape{o.width}, constant(0));
      }
    }
    if (settings.norm == "layer") {
      Spec norm{.name = "layer", .items = {}};
      set_item(norm, "epsilon", Spec{print_number(settings.epsilon), {}});
      norm_ = make_normalization(norm, {.width = o.width, .bias = o.bias});
    }
  }

  Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) override {
    if (!norm_) return compute(x, residual);
    const Tensor y = (*norm_)(compute(x, {}), pass);
    return residual ? y + residual : y;
  }
  void visit(Visitor& v) override {
    v("key", key_);
    v("key_bias", key_bias_);
    if (function_) function_->visit(v);
    v("value", value_);
    v("value_bias", value_bias_);
    v("norm", norm_);
  }

  SlotWeights slot_weights() const override {
    check(!norm_, info.name, ": norm=layer cannot be converted; use norm=none");
    SlotWeights w{.key = as_slots(key_.value),
                  .value = as_slots(value_.value),
                  .key_bias = key_bias_.value,
                  .value_bias = value_bias_.value,
                  .function = {},
                  .scale = scale_};
    if (function_) w.function = function_->activation(), w.parameters = function_->parameters();
    return w;
  }
  void store(const SlotWeights& w) override {
    key_.value.copy_from(as_matrix(w.key));
    value_.value.copy_from(as_matrix(w.value));
    if (w.parameters) function_->parameters().copy_from(w.parameters);
    if (w.key_bias) key_bias_.value.copy_from(w.key_bias);
    if (w.value_bias) value_bias_.value.copy_from(w.value_bias);
  }

 private:
  static void check_function(const std::string& name) {
    if (detail::activations().find(name)) return;
    std::vector<std::string> all = detail::activations().names();
    all.push_back("softmax");
    orrery::detail::fail_unknown(info.name, name, all, {});
  }
  Tensor compute(const Tensor& x, const Tensor& residual) {
    if (function_)
      return hooked_dense(*this, x, *function_,
                          {key_.value, key_bias_.value, transpose(value_.value), value_bias_.value}, residual);
    const Tensor y =
        attend_to_hooked_slots(path(), x, {as_slots(key_.value), as_slots(value_.value)}, {.scale = scale_});
    return residual ? y + residual : y;
  }

  double scale_;
  std::optional<PointwiseFunction> function_;  // none: softmax
  Parameter key_, value_, key_bias_, value_bias_;
  std::unique_ptr<Module> norm_;
};
REGISTER_FEED_FORWARD(Memory);

// Returns a case of the layer with x, then its parameters in the order of visit.
MakeGradientCase case_of(const std::string& spec, const GradientCase::Function& reference) {
  return [=](const CaseTensors& random) {
    GradientCase test = module_case(
        {.module = make_feed_forward(parse_spec(spec), {.width = 5, .d_ff = 7}), .input = {2, 3, 5}}, random);
    test.reference = reference;
    return test;
  };
}
Tensor softmax_reference(const Tensor& x, const Tensor& key, const Tensor& value) {
  const Tensor p = matmul(x, key, {.b = true}) * 1.5, e = exp(p - max(p, -1, true).detach());
  return matmul(e / sum(e, {-1}, true), value);
}
Tensor layer_norm_reference(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centred = x - mean(x, {-1}, true);
  return centred / sqrt(mean(centred * centred, {-1}, true) + 1e-3) * weight + bias;
}

const bool pointwise_case = add_gradient_case(
    "feed_forward", "memory",
    case_of("memory(silu)",
            [](const auto& in) {  // the registry of activations may be empty until main
              return matmul(Activation("silu")(matmul(in[0], in[1], {.b = true}) + in[2]), in[3]) + in[4];
            }),
    "memory(silu)");
const bool softmax_case =
    add_gradient_case("feed_forward", "memory",
                      case_of("memory(softmax, d_ff=9, scale=1.5)",
                              [](const auto& in) { return softmax_reference(in[0], in[1], in[2]); }),
                      "memory(softmax)");
const bool normalized_case = add_gradient_case(
    "feed_forward", "memory",
    case_of("memory(softmax, norm=layer, scale=1.5, epsilon=1e-3)",
            [](const auto& in) { return layer_norm_reference(softmax_reference(in[0], in[1], in[2]), in[3], in[4]); }),
    "memory(softmax, norm=layer)");

}  // namespace
}  // namespace orrery::nn
