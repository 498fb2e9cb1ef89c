// Dynamic erf. Chen et al. 2025, "Stronger normalization-free transformers", arXiv:2512.10938.
//   y = weight erf(alpha x + shift) + bias      alpha and shift one number each, weight and bias one for each channel
// Like DyT (dyt.cpp), with the curve that the paper's search over pointwise functions selected:
// zero-centred, bounded, steep at zero, monotone. F'(0) = 2 alpha / sqrt(pi), 1.128 times DyT's.
//
// With g = dy, u = alpha x + shift and erf'(u) = 2 / sqrt(pi) exp(-u^2):
//   dx = g weight erf'(u) alpha,   dalpha = sum of g weight erf'(u) x,   dshift = sum of g weight erf'(u)
//   dweight = sum of g erf(u),     dbias = sum of g
// Saved for backward: x. The gradient vanishes faster than tanh's: as exp(-u^2), not 4 exp(-2 u).
// The curve is in nn/activations/erf.cpp, the operation in dynamic.cpp.
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/dynamic.h"

namespace orrery::nn {
namespace {

Tensor reference(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight, const Tensor& bias) {
  return weight * erf(alpha * x + shift) + bias;
}

class Derf final : public DynamicNormalization {
 public:
  struct Settings {
    double alpha = 0.5, shift = 0;
    template <class V>
    void visit(V& v) {
      v("alpha", alpha, "initial factor of x", between(-1e6, 1e6));
      v("shift", shift, "initial value that is added to alpha x", between(-1e6, 1e6));
    }
  };
  static inline const Info info{.name = "derf",
                                .formula = "erf(alpha x + shift) * weight + bias",
                                .source = "Chen et al. 2025, arXiv:2512.10938",
                                .parameters = "alpha 0.5, shift 0 (one number each), weight 1, bias 0",
                                .saves = "x"};

  Derf(const Spec& spec, const NormalizationOptions& options) : DynamicNormalization(parse(spec), options) {}

 private:
  static Form parse(const Spec& spec) {
    const auto settings = settings_from<Settings>(spec);
    return {.activation = Activation("erf"), .alpha = settings.alpha, .shift = settings.shift};
  }
};
REGISTER_NORMALIZATION(Derf);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})},
           {"alpha", random({1})},
           {"shift", random({1})},
           {"weight", random({7})},
           {"bias", random({7})}},
          [](const auto& in) { return dynamic_norm(in[0], Activation("erf"), in[1], in[2], in[3], in[4]); },
          [](const auto& in) { return reference(in[0], in[1], in[2], in[3], in[4]); }};
}
REGISTER_GRADIENT_CASE("normalization", "derf", gradient_case);

}  // namespace
}  // namespace orrery::nn
