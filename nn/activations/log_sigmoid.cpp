// Log sigmoid: the logarithm of a probability, never positive.
//   f(x)  = log(1 / (1 + exp(-x))) = -softplus(-x)
//   f'(x) = sigmoid(-x) = 1 - exp(y)
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct LogSigmoid {
  static inline const ActivationInfo info{
      .name = "log_sigmoid",
      .formula = "-log(1 + exp(-x))",
      .source = "the logistic loss; Cox 1958",
      .limits = {-ActivationInfo::infinity, 0},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return -scalar::softplus(-x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return scalar::sigmoid(-x);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return -scalar::expm1(y);
  }
};
REGISTER_ACTIVATION(LogSigmoid);

}  // namespace
}  // namespace orrery::nn
