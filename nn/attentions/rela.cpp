// Rectified linear attention: the weights are not normalized; the head outputs are.
// Zhang, Titov and Sennrich 2021, Sparse attention with linear units, arXiv:2104.07012.
//   a_i = sum_j F(<q_i, k_j> / sqrt(D)) v_j,   F = relu,   o_i = a_i / sqrt(mean a_i^2 + epsilon) * gain
// gated=yes: o_i times sigmoid(w a_i); w starts at 0, where the gate is 1/2.
// The derivative is that of RMS normalization (nn/normalizations/rms.cpp), then of relu attention
// (engine/attention_formula/problem.h). As in the authors' code, the mean is over all heads, H Dv
// elements, and gain (initially 1) and w have this size. A token without a positive score gives 0,
// because a is 0. Saved for backward: q, k, v, a. No (T, T) array exists.
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

class Rela final : public AttentionLayer {
 public:
  struct Settings {
    bool gated = false;
    double epsilon = 1e-5;
    AttentionSettings layer;
    Spec function = parse_spec("relu");
    ParameterSettings parameters;
    template <class V>
    void visit(V& v) {
      v("gated", gated, "multiply the attention output a by sigmoid(w a)");
      v("epsilon", epsilon, "added to the mean square", above(0, 100));
      layer.visit(v);
      v("function", function, "activation F of the scores");
      parameters.visit(v);
    }
  };
  static inline const Info info{.name = "rela",
                                .formula = "o_i = rms(sum_j F(<q_i, k_j> / sqrt(D)) v_j) * gain, F = relu",
                                .source = "Zhang et al. 2021, arXiv:2104.07012",
                                .parameters = "as softmax; gain 1, w 0; those of F",
                                .saves = "q, k, v, attention output, 1/rms of each row"};

  Rela(const Spec& spec, const AttentionLayerOptions& options) : Rela(settings_from<Settings>(spec), options) {}
  Rela(const Settings& settings, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings.layer, options, {.span = false, .slots = false}),
        epsilon_(settings.epsilon),
        gain_(Shape{heads() * head_size()}, constant(1)) {
    set_function(settings.function, settings.parameters);
    if (settings.gated) gate_weight_ = Parameter(Shape{heads() * head_size()}, constant(0));
  }
  void visit(Visitor& v) override {
    AttentionLayer::visit(v);
    v("gain", gain_);
    v("opening", gate_weight_);
  }

 private:
  Tensor attend(const AttentionInputs& in, const AttentionOptions& o, ForwardPass&) override {
    return finish(attention(in, o, function().activation()).output);
  }
  Tensor finish(const Tensor& output) override {
    const Tensor a = output.reshape(Shape{output.size(0), output.size(1), output.size(2) * output.size(3)});
    const Tensor y = rms_norm(a, gain_.value, epsilon_);
    return (gate_weight_.value ? sigmoid_.gate(a * gate_weight_.value, y) : y).reshape(output.shape());
  }
  Tensor weights(const AttentionInputs& in, const AttentionOptions& o) override {
    return attention_weights(in, o, function().activation());
  }

  Activation sigmoid_{"sigmoid"};
  double epsilon_;
  Parameter gain_, gate_weight_;
};
REGISTER_ATTENTION(Rela);
const bool cases =
    add_attention_cases("rela", {"rela(scale=1)", "rela(gated=yes, scale=1)", "rela(scale=1, function=prelu)"});
const bool dropout_cases =
    add_attention_case("attention", "rela", {.spec = "rela(scale=1, dropout=0.3)", .dropout = true, .cross = true});

}  // namespace
}  // namespace orrery::nn
