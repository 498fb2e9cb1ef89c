// Mish: x times the tanh of its softplus.
//   f(x)  = x t,                  t = tanh(log(1 + exp(x)))
//   f'(x) = t + x (1 - t^2) sigmoid(x)     softplus' = sigmoid
// With z = exp(-|x|), all terms are quotients of polynomials that neither overflow nor cancel:
//   t = n / d,    d = n + c,    n = 1 + 2 z, c = 2 z^2  if x > 0, else  n = z (z + 2), c = 2
//   1 - t^2 = (d - n)(d + n) / d^2 = (c / d)(1 + t)
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Mish {
  static inline const ActivationInfo info{
      .name = "mish",
      .formula = "x * tanh(log(1 + exp(x)))",
      .source = "Misra 2019, arXiv:1908.08681",
      .limits = {0, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    const T z = scalar::exp(x > 0 ? -x : x);
    const T n = x > 0 ? 1 + 2 * z : z * (z + 2), c = x > 0 ? 2 * z * z : T(2);
    return x * (n / (n + c));
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T z = scalar::exp(x > 0 ? -x : x);
    const T n = x > 0 ? 1 + 2 * z : z * (z + 2), c = x > 0 ? 2 * z * z : T(2);
    const T t = n / (n + c), sigmoid = (x > 0 ? T(1) : z) / (1 + z);
    return t + x * (c / (n + c)) * (1 + t) * sigmoid;
  }
};
REGISTER_ACTIVATION(Mish);

}  // namespace
}  // namespace orrery::nn
