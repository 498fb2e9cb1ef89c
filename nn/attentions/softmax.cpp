// Softmax attention.  Vaswani et al. 2017, arXiv:1706.03762.
//   s_ij = <q_i, k_j> / sqrt(D) (+ position terms),   w_ij = exp(s_ij) / sum_j exp(s_ij),   o_i = sum_j w_ij v_j
// With g_ij = <do_i, v_j>, from d exp(s) / ds = exp(s) and the quotient rule:
//   ds_ij = w_ij (g_ij - sum_j w_ij g_ij) = w_ij (g_ij - <do_i, o_i>),   which adds up to 0 in every row
// temperature=learned(t): s / t with one t per head, at least 0.001. The query is divided by t,
// not the scores; dt = -sum ds_ij s_ij / t. Jha and Reagen 2025, arXiv:2501.03489. soft_cap=c:
// s becomes c tanh(s / c). Gemma Team 2024, arXiv:2408.00118. With both (in no paper) the
// temperature comes first: c tanh(s / (t c)). So c bounds the argument of exp for any t, and the
// division is on the query, T D elements instead of T^2.
// entropy_threshold is theta of the loss entropy_regularizer (nn/losses/), which uses the row
// entropies. At initialization Var o is about exp(v) / n Var v_j for n keys and scores N(0, v):
// nn/diagnostics/predictions.h. The rest, tile by tile: engine/attention_formula/problem.h. Saved
// for backward: q, k, v, o, and the log-sum-exp of each row, (B, H, T). No (T, T) array exists.
#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/diagnostics/predictions.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

class Softmax final : public AttentionLayer {
 public:
  struct Settings {
    double soft_cap = 0;
    LearnableNumber temperature{.initial = 1}, entropy_threshold{.initial = 0.5};
    AttentionSettings layer;
    template <class V>
    void visit(V& v) {
      v("soft_cap", soft_cap, "cap c of the scores: c tanh(s / c); 0: no cap", zero_or(1e-6, 1e6));
      v("temperature", temperature, "divisor of the scores; learned: one per head", above(0, 1e6, 1e-6));
      v("entropy_threshold", entropy_threshold,
        "theta of the loss entropy_regularizer, a fraction of the highest entropy; learned: one per head",
        between(0, 1));
      layer.visit(v);
    }
  };
  static inline const Info info{.name = "softmax",
                                .formula = "o_i = sum_j softmax_j(<q_i, k_j> / sqrt(D)) v_j",
                                .source = "Vaswani et al. 2017, arXiv:1706.03762",
                                .parameters =
                                    "weights N(0, 0.02^2), of the output N(0, 0.02^2 / (2 layers)), biases 0; "
                                    "if learned, per head: temperature 1, entropy_threshold 0.5",
                                .saves = "q, k, v, o, log-sum-exp of each row"};

  Softmax(const Spec& spec, const AttentionLayerOptions& options) : Softmax(settings_from<Settings>(spec), options) {}
  Softmax(const Settings& settings, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings.layer, options, {}), settings_(settings) {
    if (settings_.entropy_threshold.learned) {
      threshold_ = Parameter(Shape{heads()}, constant(settings_.entropy_threshold.initial));
      threshold_.decay = false, threshold_.lr_group = "thresholds";
    }
    if (!settings_.temperature.learned) return;
    temperature_ = Parameter(Shape{heads(), 1}, constant(settings_.temperature.initial));
    temperature_.decay = false, temperature_.min_value = 0.001, temperature_.lr_group = "temperatures";
  }
  void visit(Visitor& v) override {
    AttentionLayer::visit(v);
    v("temperature", temperature_);
    v("entropy_threshold", threshold_);
  }
  std::vector<Prediction> predicted(const InputStats& stats) const { return {predicted_softmax_output(stats)}; }

 private:
  AttentionInputs tempered(AttentionInputs in) const {
    if (temperature_.value) in.query = in.query / temperature_.value;
    return in;
  }
  AttentionOptions tempered(AttentionOptions o) const {
    o.soft_cap = settings_.soft_cap;
    if (!temperature_.value) o.scale /= settings_.temperature.initial;
    return o;
  }
  Tensor attend(const AttentionInputs& in, const AttentionOptions& o, ForwardPass& pass) override {
    const bool regularized = pass.wants_loss("entropy_regularizer");
    const AttentionOutput result = attention(tempered(in), tempered(o), {}, regularized);
    if (regularized) {
      const Dtype dtype = result.entropy.dtype();
      const Tensor theta = threshold_.value ? threshold_.value.to(dtype)
                                            : Tensor::full({heads()}, settings_.entropy_threshold.initial, dtype,
                                                           result.entropy.device());
      pass.add_loss("entropy_regularizer",
                    entropy_regularizer(result.entropy, theta, {.visible = counted_keys(in, o.mask)}));
    }
    return result.output;
  }
  Tensor weights(const AttentionInputs& in, const AttentionOptions& o) override {
    return attention_weights(tempered(in), tempered(o), {});
  }

  Settings settings_;
  Parameter temperature_, threshold_;
};
REGISTER_ATTENTION(Softmax);
REGISTER_PREDICTION(Softmax);

const bool cases = add_attention_cases(
    "softmax", {"softmax", "softmax(soft_cap=1.5, temperature=learned(0.7))", "softmax(gate=silu, qk_norm=rms)",
                "softmax(persistent=3)", "softmax(persistent=slots(5, split=yes, scaled=no), qk_norm=layer)"});
const bool self_attention_cases =
    add_attention_cases("softmax",
                        {"softmax(span=fixed(3))", "softmax(span=adaptive_span(8, R=4), persistent=3)",
                         "softmax(span=dynamic_span(9, R=5), attend_to_self=yes)"},
                        false);
const bool dropout_cases = add_attention_case(
    "attention", "softmax",
    {.spec = "softmax(dropout=0.3, persistent=slots(3, split=yes))", .dropout = true, .cross = true});
const bool loss_cases = add_attention_case(
    "attention", "softmax",
    {.spec = "softmax(temperature=learned, entropy_threshold=learned(0.4))", .losses = {"entropy_regularizer"}});
const bool span_penalty_cases = add_attention_case(
    "attention", "softmax",
    {.spec = "softmax(span=adaptive_span(20, R=8), dropout=0.2)", .losses = {"span_penalty"}, .dropout = true});

}  // namespace
}  // namespace orrery::nn
