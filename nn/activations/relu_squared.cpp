// Squared ReLU: as sparse as ReLU, with a continuous derivative.
//   f(x)  = max(x, 0)^2
//   f'(x) = 2 max(x, 0)                    chain rule
// Kink: 0, where the second derivative jumps from 0 to 2; f'(0) = 0.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct ReluSquared {
  static inline const ActivationInfo info{
      .name = "relu_squared",
      .formula = "max(x, 0)^2",
      .source = "So et al. 2021 (Primer), arXiv:2109.08668",
      .zero_below_zero = true,
      .aliases = {"squared_relu"},
      .kinks = {0},
      .limits = {0, ActivationInfo::infinity},
  };
  using tensor_cores = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    const T r = scalar::positive_part(x);
    return r * r;
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return 2 * scalar::positive_part(x);
  }
};
REGISTER_ACTIVATION(ReluSquared);

}  // namespace
}  // namespace orrery::nn
