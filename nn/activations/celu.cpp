// CELU: an ELU whose argument is scaled too, so that the derivative is continuous for every alpha.
//   f(x)  = x if x > 0, else alpha (exp(x / alpha) - 1)
//   f'(x) = 1 if x > 0, else exp(x / alpha) = 1 + y / alpha
// Kink: 0, where the second derivative jumps from 1 / alpha to 0; f'(0) = 1.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Celu {
  static inline const ActivationInfo info{
      .name = "celu",
      .formula = "x if x > 0 else alpha * (exp(x / alpha) - 1)",
      .source = "Barron 2017, arXiv:1704.07483",
      .constants = {{"alpha", 1, above(0, 1e6, 1e-6)}},
      .kinks = {0},
      .limits = {-1, ActivationInfo::infinity},
  };
  double alpha = 1;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x > 0 ? x : T(alpha) * scalar::expm1(x * T(1 / alpha));
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > 0 ? T(1) : scalar::exp(x * T(1 / alpha));
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y > 0 ? T(1) : 1 + y * T(1 / alpha);
  }
};
REGISTER_ACTIVATION(Celu);

}  // namespace
}  // namespace orrery::nn
