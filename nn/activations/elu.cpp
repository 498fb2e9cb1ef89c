// ELU: a rectifier that saturates softly at -alpha, which moves the mean towards zero.
//   f(x)  = x if x > 0, else alpha (exp(x) - 1)
//   f'(x) = 1 if x > 0, else alpha exp(x) = y + alpha
// Kink: 0, where f' jumps from alpha to 1 (for alpha = 1 only f'' jumps); f'(0) = alpha.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Elu {
  static inline const ActivationInfo info{
      .name = "elu",
      .formula = "x if x > 0 else alpha * (exp(x) - 1)",
      .source = "Clevert et al. 2015, arXiv:1511.07289",
      .constants = {{"alpha", 1, between(0, 1e6)}},
      .kinks = {0},
      .limits = {-1, ActivationInfo::infinity},
  };
  double alpha = 1;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x > 0 ? x : T(alpha) * scalar::expm1(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > 0 ? T(1) : T(alpha) * scalar::exp(x);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y > 0 ? T(1) : y + T(alpha);
  }
};
REGISTER_ACTIVATION(Elu);

}  // namespace
}  // namespace orrery::nn
