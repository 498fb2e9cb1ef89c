// Tanh shrink: x minus its tanh; suppresses small values and passes large ones.
//   f(x)  = x - tanh(x)
//   f'(x) = 1 - (1 - tanh(x)^2) = tanh(x)^2
// Near zero f is x^3 / 3 and the difference cancels: the error is relative to x, not to f.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Tanhshrink {
  static inline const ActivationInfo info{
      .name = "tanhshrink",
      .formula = "x - tanh(x)",
      .source = "Collobert et al. 2011, Torch7",
      .limits = {-ActivationInfo::infinity, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x - scalar::tanh(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T t = scalar::tanh(x);
    return t * t;
  }
};
REGISTER_ACTIVATION(Tanhshrink);

}  // namespace
}  // namespace orrery::nn
