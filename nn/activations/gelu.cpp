// Exact GELU: x times the probability that a standard normal variable is below x.
//   f(x)  = x Phi(x),    Phi(x) = (1 + erf(x / sqrt(2))) / 2
//   f'(x) = Phi(x) + x phi(x),   phi(x) = Phi'(x) = exp(-x^2 / 2) / sqrt(2 pi)        product rule
// Phi is computed from its tail, because 1 + erf would cancel for negative x.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Gelu {
  static inline const ActivationInfo info{
      .name = "gelu",
      .formula = "x * (1 + erf(x / sqrt(2))) / 2",
      .source = "Hendrycks and Gimpel 2016, arXiv:1606.08415",
      .limits = {0, ActivationInfo::infinity},
  };
  using tensor_cores = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * scalar::normal_distribution(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return scalar::normal_distribution(x) + x * scalar::normal_density(x);
  }
};
REGISTER_ACTIVATION(Gelu);

}  // namespace
}  // namespace orrery::nn
