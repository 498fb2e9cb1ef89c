// Leaky ReLU: a rectifier with a small slope for negative x, so that no unit dies.
//   f(x)  = x if x > 0, else a x           a = slope >= 0
//   f'(x) = 1 if x > 0, else a             y > 0 exactly where x > 0
// Kink: 0, where the derivative jumps from a to 1; f'(0) = a.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct LeakyRelu {
  static inline const ActivationInfo info{
      .name = "leaky_relu",
      .formula = "x if x > 0 else slope * x",
      .source = "Maas et al. 2013, Rectifier nonlinearities improve neural network acoustic models",
      .constants = {{"slope", 0.01, between(0, 1e6)}},
      .kinks = {0},
      .limits = {-ActivationInfo::infinity, ActivationInfo::infinity},
  };
  double slope = 0.01;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x > 0 ? x : T(slope) * x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > 0 ? T(1) : T(slope);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y > 0 ? T(1) : T(slope);
  }
};
REGISTER_ACTIVATION(LeakyRelu);

}  // namespace
}  // namespace orrery::nn
