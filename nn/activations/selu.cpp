// SELU: an ELU whose constants make mean 0, variance 1 a stable fixed point of deep plain networks.
//   f(x)  = lambda x if x > 0, else lambda alpha (exp(x) - 1)
//   f'(x) = lambda if x > 0, else lambda alpha exp(x) = y + lambda alpha
// Kink: 0, where f' jumps from lambda alpha = 1.758 to lambda = 1.051; f'(0) = lambda alpha.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Selu {
  static constexpr double lambda = 1.0507009873554804934193, alpha = 1.6732632423543772848170;
  static inline const ActivationInfo info{
      .name = "selu",
      .formula = "1.0507 * (x if x > 0 else 1.6733 * (exp(x) - 1))",
      .source = "Klambauer et al. 2017, arXiv:1706.02515",
      .kinks = {0},
      .limits = {-lambda * alpha, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return T(lambda) * (x > 0 ? x : T(alpha) * scalar::expm1(x));
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return T(lambda) * (x > 0 ? T(1) : T(alpha) * scalar::exp(x));
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y > 0 ? T(lambda) : y + T(lambda * alpha);
  }
};
REGISTER_ACTIVATION(Selu);

}  // namespace
}  // namespace orrery::nn
