// x / sqrt(1 + x^2), with derivative (1 + x^2)^(-3/2).
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Dropped {
  static inline const ActivationInfo info{
      .name = "dropped", .formula = "x / sqrt(1 + x^2)", .source = "a test", .limits = {-1, 1}};
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x / scalar::sqrt(1 + x * x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T square = 1 + x * x;
    return 1 / (square * scalar::sqrt(square));
  }
};
REGISTER_ACTIVATION(Dropped);

}  // namespace
}  // namespace orrery::nn
