// Square: the simplest even function.
//   f(x)  = x^2
//   f'(x) = 2 x
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Square {
  static inline const ActivationInfo info{
      .name = "square",
      .formula = "x^2",
      .source = "Livni et al. 2014, arXiv:1410.1141",
      .limits = {ActivationInfo::infinity, ActivationInfo::infinity},
  };
  using tensor_cores = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    return 2 * x;
  }
};
REGISTER_ACTIVATION(Square);

}  // namespace
}  // namespace orrery::nn
