// Divides by the mean size:  y = x / (mean |x| + epsilon)
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

class DroppedNormalization final : public Module {
 public:
  struct Settings {
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("epsilon", epsilon, "added to the mean", above(0, 100));
    }
  };
  static inline const Info info{.name = "dropped_normalization",
                                .formula = "x / (mean |x| + epsilon)",
                                .source = "a test",
                                .parameters = "none",
                                .saves = "x"};

  DroppedNormalization(const Spec& spec, const NormalizationOptions&) { read_settings(spec, settings_); }
  Tensor forward(const Tensor& x, ForwardPass&) override { return x / (mean(abs(x), {-1}, true) + settings_.epsilon); }

 private:
  Settings settings_;
};
REGISTER_NORMALIZATION(DroppedNormalization);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}},
          [](const auto& in) {
            ForwardPass pass;
            return (*make_normalization(parse_spec("dropped_normalization"), {.width = 7}))(in[0], pass);
          },
          [](const auto& in) { return in[0] * 7.0 / (sum(abs(in[0]), {-1}, true) + 7e-5); }};
}
REGISTER_GRADIENT_CASE("normalization", "dropped_normalization", gradient_case);

}  // namespace
}  // namespace orrery::nn
