// Pointwise attention: any function of the score, scaled by the length.
// Wortsman et al. 2023, Replacing softmax with ReLU in vision transformers, arXiv:2309.08586.
//   s_ij = <q_i, k_j> / sqrt(D),   w_ij = L_i^-alpha F(s_ij),   o_i = sum_j w_ij v_j
// With g_ij = <do_i, v_j>:
//   ds_ij = L_i^-alpha F'(s_ij) g_ij                     for each pair on its own: a row of ds does not add up to 0
//   dalpha = -sum_i ln L_i <do_i, o_i>                   because dw / dalpha = -ln L w
//   dp = sum_ij L_i^-alpha dF/dp(s_ij) g_ij              for learned parameters p of F, by default per head
// Initially, for independent v_j of mean 0, Var o = L^-2alpha n E[F(s)^2] Var v for n keys. With
// scores N(0, v), E[F^2] is v / 2 (relu), 3 v^2 / 2 (relu_squared), v (identity). L^-alpha scales
// the output, once, in the arithmetic type; F and F' run in the tiles of
// engine/attention_formula/problem.h. Conventions: the mask sets weights to 0 after F, as F(0) and
// F(-infinity) may not be 0; L (nn/attentions/base/length_scale.h) is a setting; alpha may be
// learned. Saved for backward: q, k, v, and the output if alpha is not 0. No (T, T) array exists.
#include <cmath>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/diagnostics/predictions.h"

namespace orrery::nn {
namespace {

class Pointwise final : public AttentionLayer {
 public:
  struct Settings {
    Spec function = parse_spec("relu");
    LearnableNumber alpha{.initial = 1};
    Spec length = parse_spec("keys_visible");
    AttentionSettings layer;
    ParameterSettings parameters;
    template <class V>
    void visit(V& v) {
      v("function", function, "activation F of the scores");
      v("alpha", alpha, "exponent alpha of the divisor L^alpha; learned: trained", between(-8, 8));
      v("length", length, "L: keys_visible, row_index, padded_length or fixed(n)");
      layer.visit(v);
      parameters.visit(v);
    }
  };
  static inline const Info info{.name = "pointwise",
                                .formula = "o_i = L^-alpha sum_j F(<q_i, k_j> / sqrt(D)) v_j",
                                .source = "Wortsman et al. 2023, arXiv:2309.08586",
                                .parameters = "as softmax; alpha from its setting (1), if learned; those of F",
                                .saves = "q, k, v; attention output if alpha is not 0",
                                .takes_activation = true};

  Pointwise(const Spec& spec, const AttentionLayerOptions& options)
      : Pointwise(settings_from<Settings>(spec), options) {}
  Pointwise(const Settings& settings, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings.layer, options, {}),
        alpha_(settings.alpha.initial),
        length_(info.name, settings.length, options.causal && !options.encoder_width) {
    set_function(settings.function, settings.parameters);
    if (!settings.alpha.learned) return;
    learned_alpha_ = Parameter(Shape{1}, constant(alpha_));
    learned_alpha_.lr_group = "exponents";
  }
  void visit(Visitor& v) override {
    AttentionLayer::visit(v);
    v("alpha", learned_alpha_);
  }
  std::vector<Prediction> predicted(const InputStats& stats) const {
    const double square = function().mean_over_heads(
                     [&](const auto& f) { return mean_square(stats.mean_square, f); }),
                 alpha = learned_alpha_.value ? learned_alpha_.value.item() : alpha_;
    const double head_output = mean_over(stats.queries, [&](const QueryGroup& group) {
      return group.keys * std::pow(length_.length(group), -2 * alpha) * square;
    });
    return {{ratio::head_output, head_output, text("n E[F(s)^2] / L^", significant(2 * alpha, 3)), stats.mean_square}};
  }

 private:
  Tensor scaled(const Tensor& x, const Tensor& log_length) const {
    return times_once(x, exp(learned_alpha_.value ? -(log_length * learned_alpha_.value.to(log_length.dtype()))
                                                  : log_length * -alpha_));
  }
  Tensor attend(const AttentionInputs& in, const AttentionOptions& o, ForwardPass&) override {
    const Tensor output = attention(in, o, function().activation()).output;
    if (alpha_ == 0 && !learned_alpha_.value) return output;
    return scaled(output, length_.log_length(in, o.mask));
  }
  Tensor weights(const AttentionInputs& in, const AttentionOptions& o) override {
    const Tensor n = length_.log_length(in, o.mask);
    const Tensor log_length = n.reshape(Shape{n.size(0), 1, n.size(1), 1});
    show_step(o, "weight_factor", [&] { return scaled(Tensor::full_like(log_length, {1}, 1), log_length); });
    return scaled(attention_weights(in, o, function().activation()), log_length);
  }

  double alpha_;
  Parameter learned_alpha_;
  LengthScale length_;
};
REGISTER_ATTENTION(Pointwise);
REGISTER_PREDICTION(Pointwise);

const bool cases = add_attention_cases(
    "pointwise", {"pointwise(gelu)", "pointwise(sigmoid, alpha=learned(0.5), length=fixed(7))",
                  "pointwise(relu, alpha=2, length=padded_length, gate=silu)", "pointwise(elu(0.5), alpha=0)",
                  "pointwise(relu, alpha=learned(0.8))", "pointwise(gelu, persistent=3)",
                  "pointwise(softplus, alpha=0.5, persistent=slots(3, split=yes))"});
const bool self_attention_cases = add_attention_cases(
    "pointwise",
    {"pointwise(softplus, span=adaptive_span(8, R=4), persistent=3)", "pointwise(silu, span=dynamic_span(9))"}, false);
const bool row_index_cases = add_attention_case(
    "attention", "pointwise", {.spec = "pointwise(gelu, alpha=learned(0.6), length=row_index)", .full = false});
const bool dropout_cases = add_attention_case(
    "attention", "pointwise", {.spec = "pointwise(silu, dropout=0.3, persistent=3)", .dropout = true, .cross = true});
const bool learned_cases = add_attention_cases(
    "pointwise", {"pointwise(prelu, gate=prelu)", "pointwise(xielu, alpha=0.5, parameters_per=layer)",
                  "pointwise(prelu(0.5), persistent=slots(3, split=yes))"});
const bool learned_self_attention_cases =
    add_attention_cases("pointwise", {"pointwise(xielu, span=adaptive_span(8, R=4), persistent=3)"}, false);
const bool learned_dropout_cases =
    add_attention_case("attention", "pointwise", {.spec = "pointwise(prelu, dropout=0.3)", .dropout = true});

}  // namespace
}  // namespace orrery::nn
