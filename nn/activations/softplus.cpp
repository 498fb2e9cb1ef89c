// Softplus: the smooth rectifier, the integral of the sigmoid.
//   f(x)  = log(1 + exp(x))
//   f'(x) = sigmoid(x) = 1 - exp(-y)
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Softplus {
  static inline const ActivationInfo info{
      .name = "softplus",
      .formula = "log(1 + exp(x))",
      .source = "Dugas et al. 2000, Incorporating second-order functional knowledge",
      .limits = {0, ActivationInfo::infinity},
  };
  using tensor_cores = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::softplus(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return scalar::sigmoid(x);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return -scalar::expm1(-y);
  }
};
REGISTER_ACTIVATION(Softplus);

}  // namespace
}  // namespace orrery::nn
