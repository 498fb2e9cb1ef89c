// Softsign: saturates like tanh, but slowly, at the rate 1 / x.
//   f(x)  = x / (1 + |x|)
//   f'(x) = 1 / (1 + |x|)^2                quotient rule; the two terms with |x| cancel
// Kink: 0, where the second derivative jumps from 2 to -2; f'(0) = 1.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Softsign {
  static inline const ActivationInfo info{
      .name = "softsign",
      .formula = "x / (1 + |x|)",
      .source = "Turian et al. 2009, Quadratic features and deep architectures for chunking",
      .kinks = {0},
      .limits = {-1, 1},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x / (1 + scalar::abs(x));
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T d = 1 + scalar::abs(x);
    return 1 / (d * d);
  }
};
REGISTER_ACTIVATION(Softsign);

}  // namespace
}  // namespace orrery::nn
