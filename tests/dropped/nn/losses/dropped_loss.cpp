// Half the mean square of values whose target is 0.
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/losses/base/loss.h"

namespace orrery::nn {
namespace {

constexpr LossInfo info{
    .name = "dropped_loss", .formula = "mean x^2 / 2", .source = "a test", .parameters = "none", .saves = "x"};
REGISTER_LOSS(info);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({3, 4})}},
          [](const auto& in) { return mean(in[0] * in[0]) * 0.5; },
          [](const auto& in) { return sum(in[0] * in[0]) / 24.0; }};
}
REGISTER_GRADIENT_CASE("loss", "dropped_loss", gradient_case);

}  // namespace
}  // namespace orrery::nn
