// Error function: the fastest of the saturating curves. Derf uses it instead of normalization.
//   f(x)  = erf(x) = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x
//   f'(x) = 2 / sqrt(pi) * exp(-x^2)
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Erf {
  static inline const ActivationInfo info{
      .name = "erf",
      .formula = "erf(x)",
      .source = "in Derf, arXiv:2512.10938",
      .limits = {-1, 1},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::erf(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return T(1.12837916709551257390) * scalar::exp(-x * x);
  }
};
REGISTER_ACTIVATION(Erf);

}  // namespace
}  // namespace orrery::nn
