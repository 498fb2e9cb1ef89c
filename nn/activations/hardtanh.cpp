// Hard tanh: a piecewise linear tanh of three segments.
//   f(x)  = min(max(x, -1), 1)
//   f'(x) = 1 if -1 < x < 1, else 0        y = x between, so the same test on y gives f'
// Kinks: -1 and 1, where the derivative jumps; it is 0 at both.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Hardtanh {
  static inline const ActivationInfo info{
      .name = "hardtanh",
      .formula = "min(max(x, -1), 1)",
      .source = "Collobert 2004, Large scale machine learning",
      .aliases = {"hard_tanh"},
      .kinks = {-1, 1},
      .limits = {-1, 1},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x < -1 ? T(-1) : x > 1 ? T(1) : x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return x > -1 ? (x < 1 ? T(1) : T(0)) : T(0);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return derivative(y);
  }
};
REGISTER_ACTIVATION(Hardtanh);

}  // namespace
}  // namespace orrery::nn
