// Dynamic tanh.  Zhu et al. 2025, "Transformers without normalization", arXiv:2503.10622.
//   y = weight tanh(alpha x) + bias             alpha one number for the layer, weight and bias one for each channel
// Layer normalization draws S-shaped curves: most values pass almost in proportion, the few large ones are squashed.
// DyT draws that curve directly.  It computes no mean and no variance, so a token never waits for a sum over its row.
//
// With g = dy, t = tanh(alpha x) and tanh' = 1 - t^2:
//   dx      = g weight (1 - t^2) alpha
//   dalpha  = sum of g weight (1 - t^2) x         over batch, tokens and channels
//   dweight = sum of g t,   dbias = sum of g      over batch and tokens
// Kept: x.  From y it could not be had: where tanh is 1 to the last bit, x is lost, and dalpha needs it.
//
// alpha starts at 0.5.  Language models of width 1024 and less start it at 1; it falls with the width (at 4096: 0.8
// before attention, 0.2 elsewhere), and they scale the embedding (embedding_scale=learned), because tanh(alpha x) does
// not enlarge a small signal.  The bias is absent where normalizations have none (normalization_bias=no), as in LLaMA.
//
// The curve is nn/activations/tanh.cpp, the operation dynamic.cpp, its loops dynamic_kernels.h: DyT is dynamic(tanh).
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/dynamic.h"

namespace orrery::nn {
namespace {

Tensor reference(const Tensor& x, const Tensor& alpha, const Tensor& weight, const Tensor& bias) {
  return weight * tanh(alpha * x) + bias;
}

class Dyt final : public DynamicNormalization {
 public:
  struct Settings {
    double alpha = 0.5;
    template <class V>
    void visit(V& v) {
      v("alpha", alpha, "slope at zero, at the start", between(-1e6, 1e6));
    }
  };
  static inline const Info info{.name = "dyt",
                                .formula = "tanh(alpha x) * weight + bias",
                                .source = "Zhu et al. 2025, arXiv:2503.10622",
                                .parameters = "alpha 0.5 (one number), weight 1, bias 0",
                                .keeps = "x"};

  Dyt(const Spec& spec, const NormalizationOptions& options) : DynamicNormalization(read(spec), options) {}

 private:
  static Form read(const Spec& spec) {
    Settings settings;
    read_settings(spec, settings);
    return {.activation = Activation("tanh"), .alpha = settings.alpha};
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
