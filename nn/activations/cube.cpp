// Cube: creates products of three inputs, which suits dependency parsing.
//   f(x)  = x^3
//   f'(x) = 3 x^2
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Cube {
  static inline const ActivationInfo info{
      .name = "cube",
      .formula = "x^3",
      .source = "Chen and Manning 2014, A fast and accurate dependency parser using neural networks",
      .limits = {-ActivationInfo::infinity, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * x * x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return 3 * x * x;
  }
};
REGISTER_ACTIVATION(Cube);

}  // namespace
}  // namespace orrery::nn
