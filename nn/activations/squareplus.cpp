// Squareplus: softplus without exponentials.
//   f(x)  = (x + r) / 2,          r = sqrt(x^2 + b)
//   f'(x) = (1 + x / r) / 2 = y / r
// For negative x the sum cancels; (x + r)(r - x) = b gives f(x) = b / (2 (r - x)) there. In terms of y,
//   r = y + b / (4 y),  so  f' = 4 y^2 / (4 y^2 + b)
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Squareplus {
  static inline const ActivationInfo info{
      .name = "squareplus",
      .formula = "(x + sqrt(x^2 + b)) / 2",
      .source = "Barron 2021, arXiv:2112.11687",
      .constants = {{"b", 4, above(0, 1e6)}},
      .limits = {0, ActivationInfo::infinity},
  };
  double b = 4;

  template <class T>
  HOST_DEVICE T value(T x) const {
    const T r = scalar::sqrt(x * x + T(b));
    return (x > 0 ? x + r : T(b)) / (x > 0 ? T(2) : 2 * (r - x));
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T r = scalar::sqrt(x * x + T(b));
    return (x > 0 ? x + r : T(b)) / ((x > 0 ? T(2) : 2 * (r - x)) * r);
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    const T square = 4 * y * y;
    return square / (square + T(b));
  }
};
REGISTER_ACTIVATION(Squareplus);

}  // namespace
}  // namespace orrery::nn
