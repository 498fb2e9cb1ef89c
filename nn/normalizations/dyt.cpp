// Dynamic tanh. Zhu et al. 2025, "Transformers without normalization", arXiv:2503.10622.
//   y = weight tanh(alpha x) + bias             alpha one number for the layer, weight and bias one for each channel
// Layer normalization squashes large values by an S-shaped curve. DyT is such a curve, and needs no
// mean or variance of a row. alpha is the slope at zero: a larger alpha saturates earlier.
//
// With g = dy, t = tanh(alpha x) and tanh' = 1 - t^2:
//   dx      = g weight (1 - t^2) alpha
//   dalpha  = sum of g weight (1 - t^2) x         over batch, tokens and channels
//   dweight = sum of g t,   dbias = sum of g      over batch and tokens
// Saved for backward: x, for dalpha. y does not determine x where tanh rounds to 1.
//
// Initially alpha = 0.5. by_width=yes sets the paper's values for language models instead:
//   width                   1024   2048   4096   5120   8192
//   before attention        1      1      0.8    0.6    0.2
//   elsewhere               1      0.5    0.2    0.15   0.05
// Between these widths alpha is linear in log width; beyond the ends it is constant. The paper's
// language models also scale the embedding (embedding_scale=learned), because tanh(alpha x) does
// not enlarge a small signal. The bias is absent if normalization_bias=no, as in LLaMA.
// DyT is dynamic(tanh): see nn/activations/tanh.cpp, dynamic.cpp, nn/formulas/dynamic_kernels.h.
#include <array>
#include <cmath>

#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/dynamic.h"

namespace orrery::nn {
namespace {

Tensor reference(const Tensor& x, const Tensor& alpha, const Tensor& weight, const Tensor& bias) {
  return weight * tanh(alpha * x) + bias;
}

struct InitialAlpha {
  double width, before_attention, other;
};
constexpr std::array<InitialAlpha, 5> initial_alphas = {
    {{1024, 1, 1}, {2048, 1, 0.5}, {4096, 0.8, 0.2}, {5120, 0.6, 0.15}, {8192, 0.2, 0.05}}};

double initial_alpha_by_width(const NormalizationOptions& o) {
  const auto width = static_cast<double>(o.width);
  const auto alpha = [&](const InitialAlpha& s) { return o.before_attention ? s.before_attention : s.other; };
  if (width <= initial_alphas.front().width) return alpha(initial_alphas.front());
  for (size_t i = 1; i < initial_alphas.size(); ++i) {
    const InitialAlpha &below = initial_alphas[i - 1], &above = initial_alphas[i];
    if (width < above.width)
      return std::lerp(alpha(below), alpha(above), std::log(width / below.width) / std::log(above.width / below.width));
  }
  return alpha(initial_alphas.back());
}

class Dyt final : public DynamicNormalization {
 public:
  struct Settings {
    double alpha = 0.5;
    bool by_width = false;
    template <class V>
    void visit(V& v) {
      v("alpha", alpha, "initial slope at zero", between(-1e6, 1e6));
      v("by_width", by_width, "take the initial alpha that the paper lists for language models of this width");
    }
  };
  static inline const Info info{.name = "dyt",
                                .formula = "tanh(alpha x) * weight + bias",
                                .source = "Zhu et al. 2025, arXiv:2503.10622",
                                .parameters = "alpha 0.5 (one number), weight 1, bias 0",
                                .saves = "x"};

  Dyt(const Spec& spec, const NormalizationOptions& options) : DynamicNormalization(parse(spec, options), options) {}

 private:
  static Form parse(const Spec& spec, const NormalizationOptions& options) {
    const auto settings = settings_from<Settings>(spec);
    check(!settings.by_width || settings.alpha == Settings().alpha,
          "dyt: by_width=yes sets the initial alpha by the width, but alpha=", print_number(settings.alpha),
          " sets another; leave one of them out");
    return {.activation = Activation("tanh"),
            .alpha = settings.by_width ? initial_alpha_by_width(options) : settings.alpha};
  }
};
REGISTER_NORMALIZATION(Dyt);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}, {"alpha", random({1})}, {"weight", random({7})}, {"bias", random({7})}},
          [](const auto& in) { return dynamic_norm(in[0], Activation("tanh"), in[1], {}, in[2], in[3]); },
          [](const auto& in) { return reference(in[0], in[1], in[2], in[3]); }};
}
REGISTER_GRADIENT_CASE("normalization", "dyt", gradient_case);

}  // namespace
}  // namespace orrery::nn
