// Quick GELU: GELU approximated with one sigmoid, as in CLIP.
//   f(x)  = x s,                  s = sigmoid(1.702 x)
//   f'(x) = s (1 + 1.702 x (1 - s))        product rule with s' = 1.702 s (1 - s)
// `sigmoid_and_rest` returns 1 - s without cancellation.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct QuickGelu {
  static inline const ActivationInfo info{
      .name = "quick_gelu",
      .formula = "x * sigmoid(1.702 * x)",
      .source = "Hendrycks and Gimpel 2016, arXiv:1606.08415",
      .limits = {0, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * scalar::sigmoid(T(1.702) * x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const auto [s, rest] = scalar::sigmoid_and_rest(T(1.702) * x);
    return s * (1 + T(1.702) * x * rest);
  }
};
REGISTER_ACTIVATION(QuickGelu);

}  // namespace
}  // namespace orrery::nn
