// Arctangent: saturates slowly at pi / 2 on either side, at the rate 1 / x.
//   f(x)  = atan(x)
//   f'(x) = 1 / (1 + x^2)
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Arctan {
  static inline const ActivationInfo info{
      .name = "arctan",
      .formula = "atan(x)",
      .source = "in the search of Derf, arXiv:2512.10938",
      .aliases = {"atan"},
      .limits = {-1.57079632679489661923, 1.57079632679489661923},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::atan(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return 1 / (1 + x * x);
  }
};
REGISTER_ACTIVATION(Arctan);

}  // namespace
}  // namespace orrery::nn
