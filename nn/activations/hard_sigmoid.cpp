// Hard sigmoid: a piecewise linear sigmoid of three segments, as in MobileNetV3.
//   f(x)  = min(max(x / 6 + 1/2, 0), 1)
//   f'(x) = 1/6 if -3 < x < 3, else 0
// Kinks: -3 and 3, where the derivative jumps; it is 0 at both.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct HardSigmoid {
  static inline const ActivationInfo info{
      .name = "hard_sigmoid",
      .formula = "min(max(x / 6 + 1/2, 0), 1)",
      .source = "Howard et al. 2019, arXiv:1905.02244",
      .kinks = {-3, 3},
      .limits = {0, 1},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    const T r = x + 3;
    return (r < 0 ? T(0) : r > 6 ? T(6) : r) * T(1.0 / 6);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > -3 ? (x < 3 ? T(1.0 / 6) : T(0)) : T(0);
  }
};
REGISTER_ACTIVATION(HardSigmoid);

}  // namespace
}  // namespace orrery::nn
