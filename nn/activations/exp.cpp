// Exponential: a softmax without normalization, or a feature map for linear attention.
//   f(x)  = exp(x)
//   f'(x) = y
// It overflows to infinity above 88.7 in f32 and bf16, above 709.8 in f64.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Exp {
  static inline const ActivationInfo info{
      .name = "exp",
      .formula = "exp(x)",
      .source = "as a feature map: Choromanski et al. 2020, arXiv:2009.14794",
      .limits = {0, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::exp(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return scalar::exp(x);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y;
  }
};
REGISTER_ACTIVATION(Exp);

}  // namespace
}  // namespace orrery::nn
