// Hard swish: x times the hard sigmoid, a swish without an exponential.
//   f(x)  = x min(max(x + 3, 0), 6) / 6
//   f'(x) = 0 if x <= -3,  1 if x >= 3,  else (2 x + 3) / 6
// Kinks: -3, where f' jumps from 0 to -1/2, f'(-3) = 0; 3, where f' jumps from 3/2 to 1, f'(3) = 1.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct HardSwish {
  static inline const ActivationInfo info{
      .name = "hard_swish",
      .formula = "x * min(max(x + 3, 0), 6) / 6",
      .source = "Howard et al. 2019, arXiv:1905.02244",
      .kinks = {-3, 3},
      .limits = {0, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    const T r = x + 3;
    return x * (r < 0 ? T(0) : r > 6 ? T(6) : r) * T(1.0 / 6);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > -3 ? (x < 3 ? (2 * x + 3) * T(1.0 / 6) : T(1)) : T(0);
  }
};
REGISTER_ACTIVATION(HardSwish);

}  // namespace
}  // namespace orrery::nn
