// No normalization:  y = x,  dx = dy. Returns x itself, at no cost.
// Saved for backward: nothing.
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/diagnostics/predictions.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

class NoNormalization final : public Module {
 public:
  static inline const Info info{
      .name = "none", .formula = "x", .source = "definition", .parameters = "none", .saves = "nothing"};
  NoNormalization(const Spec& spec, const NormalizationOptions&) {
    check(spec.items.empty(), "normalization: ", spec, ": none takes no settings; use normalization=none");
  }
  Tensor forward(const Tensor& x, ForwardPass&) override { return x; }
  std::vector<Prediction> predicted(const InputStats& stats) const {
    return {{ratio::normalized, 1, "1", stats.mean_square}, {ratio::gradient, 1, "1", stats.mean_square}};
  }
};
REGISTER_NORMALIZATION(NoNormalization);
REGISTER_PREDICTION(NoNormalization);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}},
          [](const auto& in) {
            ForwardPass pass;
            return (*make_normalization(parse_spec("none"), {.width = 7}))(in[0], pass);
          },
          [](const auto& in) { return in[0] * 1.0; }};
}
REGISTER_GRADIENT_CASE("normalization", "none", gradient_case);

}  // namespace
}  // namespace orrery::nn
