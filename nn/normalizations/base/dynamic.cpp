// Signal propagation of dynamic normalizations at initialization, for x ~ N(0, v) and bias 0.
// With u = alpha x + shift ~ N(shift, alpha^2 v):
//   E y^2 = mean weight^2 E F(u)^2
//   E dx^2 = mean weight^2 alpha^2 E F'(u)^2 E dy^2        from dx = dy weight alpha F'(u)
// So a small signal is only scaled: for tanh both gains are alpha^2 if alpha^2 v is far below 1. A
// normalization has gain 1 / v.
#include "nn/normalizations/base/dynamic.h"

#include "engine/ops/ops.h"

namespace orrery::nn {

std::vector<Prediction> DynamicNormalization::predicted(const InputStats& stats) const {
  const double alpha = alpha_.value ? alpha_.value.item() : fixed_alpha_,
               shift = shift_.value ? shift_.value.item() : 0, v = stats.mean_square,
               weight = weight_.value ? mean(weight_.value * weight_.value).to(Dtype::f64).item() : 1;
  const auto affine = [&](double x) { return alpha * x + shift; };
  const Activation& f = activation_.activation();
  const std::vector<double> p = activation_.parameters() ? activation_.parameters().to_vector() : std::vector<double>();
  const double value = mean_square(v, [&](double x) { return f.value(affine(x), p); }),
               slope = mean_square(v, [&](double x) { return alpha * f.derivative(affine(x), p); });
  return {{ratio::normalized, weight * value / v, "E[F(u)^2] / v", v},
          {ratio::gradient, weight * slope, "alpha^2 E[F'(u)^2]", v}};
}
REGISTER_PREDICTION(DynamicNormalization);

}  // namespace orrery::nn
