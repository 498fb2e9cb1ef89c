// Sine: the periodic activation of implicit neural representations.
//   f(x)  = sin(w x),             w = frequency
//   f'(x) = w cos(w x)
// SIREN uses w = 30 with matching initial weights. Accurate for |w x| < 1e4; no limit at infinity.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Sine {
  static inline const ActivationInfo info{
      .name = "sine",
      .formula = "sin(frequency * x)",
      .source = "Sitzmann et al. 2020, arXiv:2006.09661",
      .constants = {{"frequency", 1}},
      .limits = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()},
  };
  double frequency = 1;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::sin(T(frequency) * x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return T(frequency) * scalar::cos(T(frequency) * x);
  }
};
REGISTER_ACTIVATION(Sine);

}  // namespace
}  // namespace orrery::nn
