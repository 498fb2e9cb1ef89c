// Tanh: a zero-centred sigmoid, tanh(x) = 2 sigmoid(2 x) - 1.
//   f(x)  = (exp(x) - exp(-x)) / (exp(x) + exp(-x))
//   f'(x) = 1 - y^2
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Tanh {
  static inline const ActivationInfo info{
      .name = "tanh",
      .formula = "tanh(x)",
      .source = "LeCun et al. 1998, Efficient backprop; in DyT, Zhu et al. 2025, arXiv:2503.10622",
      .limits = {-1, 1},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::tanh(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T y = scalar::tanh(x);
    return 1 - y * y;
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return 1 - y * y;
  }
};
REGISTER_ACTIVATION(Tanh);

}  // namespace
}  // namespace orrery::nn
