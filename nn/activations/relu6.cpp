// ReLU6: a rectifier with an upper limit, designed for low-precision numbers.
//   f(x)  = min(max(x, 0), 6)
//   f'(x) = 1 if 0 < x < 6, else 0         y = x between, so the same test on y gives f'
// Kinks: 0 and 6, where the derivative jumps; it is 0 at both.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Relu6 {
  static inline const ActivationInfo info{
      .name = "relu6",
      .formula = "min(max(x, 0), 6)",
      .source = "Krizhevsky 2010, Convolutional deep belief networks on CIFAR-10",
      .zero_below_zero = true,
      .kinks = {0, 6},
      .limits = {0, 6},
  };
  using tensor_cores = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x < 0 ? T(0) : x > 6 ? T(6) : x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > 0 ? (x < 6 ? T(1) : T(0)) : T(0);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return derivative(y);
  }
};
REGISTER_ACTIVATION(Relu6);

}  // namespace
}  // namespace orrery::nn
