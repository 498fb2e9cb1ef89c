// ReLU, the rectifier: sets negative values to zero.
//   f(x)  = max(x, 0)
//   f'(x) = 1 if x > 0, else 0             y > 0 exactly where x > 0, so y alone gives f'
//   f(a x) = a f(x) for a > 0
// Kink: 0, where the derivative jumps from 0 to 1; f'(0) = 0 by convention.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Relu {
  static inline const ActivationInfo info{
      .name = "relu",
      .formula = "max(x, 0)",
      .source = "Fukushima 1969; Nair and Hinton 2010",
      .zero_below_zero = true,
      .kinks = {0},
      .limits = {0, ActivationInfo::infinity},
  };
  using tensor_cores = void;
  using homogeneous = void;
  using positive_part = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::positive_part(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > 0 ? T(1) : T(0);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y > 0 ? T(1) : T(0);
  }
};
REGISTER_ACTIVATION(Relu);

}  // namespace
}  // namespace orrery::nn
