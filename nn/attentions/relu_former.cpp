// Variance-reduced ReLU attention.  A Study on ReLU and Softmax in Transformer, arXiv:2302.06461.
//   s_ij = <q_i, k_j> / sqrt(D),   w_ij = F(s_ij) / (gamma sqrt(n_i / 2)),   o_i = sum_j w_ij v_j,   F = relu
// For scores and values of variance 1, relu(s) has second moment 1/2. So a row of n keys has
// variance n / 2 without the factor, and 1 with it. gamma = exp(rho) is positive; rho is one per
// head, initially ln gamma. With independent values of mean 0 and scores N(0, v), Var o / Var v =
// n E[relu(s)^2] / (gamma^2 n / 2), which is v / gamma^2 if n counts the visible keys.
// With g_ij = <do_i, v_j>:
//   ds_ij = g_ij [s_ij > 0] / (gamma sqrt(n_i / 2)),   drho = -sum_ij g_ij w_ij = -sum_i <do_i, o_i>
//
// Two optional losses (pass.wants_loss) use the sum S and the entropy H of each row:
//   normalization_loss = mean |ln S|,   entropy_margin_loss = mean max(H - 0.7 ln n, 0)      (nn/losses/)
// S is the sum of w. The factor is equal within a row, so H is the entropy of max(F(s), 0). Their
// gradients reach s through engine/attention_formula/problem.h.
//
// Conventions (the paper leaves them open, or is read in different ways): gamma divides; there is
// one gamma per head; n_i is the number of visible keys and slots, at least 1 (setting `length`;
// the margin always uses this number); the scores keep 1 / sqrt(D); relu'(0) = 0. Saved for
// backward: q, k, v, o; with the losses also S, P and H of each row. No (T, T) array exists.
#include <cmath>

#include "engine/ops/ops.h"
#include "nn/attentions/base/attention.h"
#include "nn/attentions/base/cases.h"
#include "nn/attentions/base/length_scale.h"
#include "nn/diagnostics/predictions.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

class ReluFormer final : public AttentionLayer {
 public:
  struct Settings {
    double gamma = 1;
    Spec length = parse_spec("keys_visible");
    AttentionSettings layer;
    Spec function = parse_spec("relu");
    ParameterSettings parameters;
    template <class V>
    void visit(V& v) {
      v("gamma", gamma, "initial value of gamma, which is learned per head", above(0, 1e6, 1e-6));
      v("length", length, "n, length in the divisor: keys_visible, row_index, padded_length or fixed(n)");
      layer.visit(v);
      v("function", function, "activation F of the scores");
      parameters.visit(v);
    }
  };
  static inline const Info info{.name = "relu_former",
                                .formula = "o_i = sum_j F(<q_i, k_j> / sqrt(D)) v_j / (gamma sqrt(n_i / 2)), F = relu",
                                .source = "A Study on ReLU and Softmax in Transformer, arXiv:2302.06461",
                                .parameters = "as softmax; ln gamma per head, gamma from its setting (1); those of F",
                                .saves = "q, k, v, attention output; with a loss, sum and entropy of each row"};

  ReluFormer(const Spec& spec, const AttentionLayerOptions& options)
      : ReluFormer(settings_from<Settings>(spec), options) {}
  ReluFormer(const Settings& settings, const AttentionLayerOptions& options)
      : AttentionLayer(info.name, settings.layer, options, {}),
        length_(info.name, settings.length, options.causal && !options.encoder_width),
        log_gamma_(Shape{heads(), 1}, constant(std::log(settings.gamma))) {
    set_function(settings.function, settings.parameters);
    log_gamma_.decay = false, log_gamma_.lr_group = "gammas";
  }
  void visit(Visitor& v) override {
    AttentionLayer::visit(v);
    v("log_gamma", log_gamma_);
  }
  std::vector<Prediction> predicted(const InputStats& stats) const {
    double inverse_square = 0;
    for (const double log_gamma : log_gamma_.value.to_vector()) inverse_square += std::exp(-2 * log_gamma);
    inverse_square /= static_cast<double>(heads());
    const bool relu = function().activation().info().name == "relu";
    const double twice = relu ? stats.mean_square : function().mean_over_heads([&](const auto& f) {
      return 2 * mean_square(stats.mean_square, f);
    });
    const double head_output = mean_over(stats.queries, [&](const QueryGroup& group) {
      return group.keys / length_.length(group) * twice * inverse_square;
    });
    return {{ratio::head_output, head_output, relu ? "v / gamma^2" : "2 E[F(s)^2] / gamma^2", stats.mean_square}};
  }

 private:
  // 1 / (gamma sqrt(n / 2)), (B or 1, Tq, H, 1)
  Tensor factor(const AttentionInputs& in, const AttentionOptions& o) const {
    const Tensor log_length = length_.log_length(in, o.mask);
    return exp(-(log_length * 0.5 + log_gamma_.value.to(log_length.dtype()))) * std::sqrt(2.0);
  }
  Tensor attend(const AttentionInputs& in, const AttentionOptions& o, ForwardPass& pass) override {
    const bool losses = pass.wants_loss("normalization_loss") || pass.wants_loss("entropy_margin_loss");
    const AttentionOutput result = attention(in, o, function().activation(), losses);
    const Tensor f = factor(in, o);
    if (losses) add_losses(result, f, in, o, pass);
    return times_once(result.output, f);
  }
  // Padding rows have n = 0 here, which excludes them from both means.
  void add_losses(const AttentionOutput& result, const Tensor& f, const AttentionInputs& in, const AttentionOptions& o,
                  ForwardPass& pass) const {
    const Tensor n = counted_keys(in, o.mask), factors = permute(f, {0, 2, 3, 1});
    const Tensor sums = result.sum * factors.reshape(Shape{f.size(0), f.size(2), f.size(1)}).to(result.sum.dtype());
    if (pass.wants_loss("normalization_loss"))
      pass.add_loss("normalization_loss", normalization_loss(where(n, sums, Tensor::zeros_like(sums, {1}))));
    if (pass.wants_loss("entropy_margin_loss"))
      pass.add_loss("entropy_margin_loss", entropy_margin_loss(result.entropy, n));
  }
  Tensor weights(const AttentionInputs& in, const AttentionOptions& o) override {
    const Tensor f = permute(factor(in, o), {0, 2, 1, 3});
    show_step(o, "weight_factor", [&] { return f; });
    return times_once(attention_weights(in, o, function().activation()), f);
  }

  LengthScale length_;
  Parameter log_gamma_;
};
REGISTER_ATTENTION(ReluFormer);
REGISTER_PREDICTION(ReluFormer);
const bool cases = add_attention_cases("relu_former", {"relu_former", "relu_former(gamma=1.7, qk_norm=layer)",
                                                       "relu_former(persistent=slots(4, split=yes))"});
const bool self_attention_cases =
    add_attention_cases("relu_former", {"relu_former(span=adaptive_span(8, R=4), persistent=3)"}, false);
const bool row_index_cases =
    add_attention_case("attention", "relu_former", {.spec = "relu_former(length=row_index)", .full = false});
const bool dropout_cases = add_attention_case(
    "attention", "relu_former", {.spec = "relu_former(dropout=0.3, persistent=3)", .dropout = true, .cross = true});
const bool loss_cases = add_attention_case("attention", "relu_former",
                                           {.spec = "relu_former(gamma=1.2, persistent=4)",
                                            .losses = {"normalization_loss", "entropy_margin_loss"},
                                            .cross = true});
const bool learned_cases = add_attention_cases("relu_former", {"relu_former(function=prelu, parameters_per=layer)"});
const bool learned_loss_cases = add_attention_case(
    "attention", "relu_former",
    {.spec = "relu_former(gamma=1.2, function=xielu, persistent=4)", .losses = {"entropy_margin_loss"}});

}  // namespace
}  // namespace orrery::nn
