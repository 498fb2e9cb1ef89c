// Sigmoid: the logistic function.
//   f(x)  = 1 / (1 + exp(-x))
//   f'(x) = y (1 - y)                      `sigmoid_and_rest` gives 1 - y, accurate in both tails
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Sigmoid {
  static inline const ActivationInfo info{
      .name = "sigmoid",
      .formula = "1 / (1 + exp(-x))",
      .source = "Verhulst 1845; Rumelhart et al. 1986",
      .aliases = {"logistic"},
      .limits = {0, 1},
  };
  using tensor_cores = void;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::sigmoid(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const auto [s, rest] = scalar::sigmoid_and_rest(x);
    return s * rest;
  }
  template <class T>
  HOST_DEVICE T derivative_from_output(T y) const {
    return y * (1 - y);
  }
};
REGISTER_ACTIVATION(Sigmoid);

}  // namespace
}  // namespace orrery::nn
