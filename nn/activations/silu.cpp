// SiLU, also called swish: x gated by its own sigmoid.
//   f(x)  = x s,                  s = sigmoid(beta x) = 1 / (1 + exp(-beta x))
//   f'(x) = s (1 + beta x (1 - s))         product rule with s' = beta s (1 - s)
// `sigmoid_and_rest` returns 1 - s without cancellation.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Silu {
  static inline const ActivationInfo info{
      .name = "silu",
      .formula = "x * sigmoid(beta * x)",
      .source = "Elfwing et al. 2017, arXiv:1702.03118; Ramachandran et al. 2017, arXiv:1710.05941",
      .constants = {{"beta", 1}},
      .aliases = {"swish"},
      .limits = {0, ActivationInfo::infinity},
  };
  using tensor_cores = void;
  double beta = 1;

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * scalar::sigmoid(T(beta) * x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const auto [s, rest] = scalar::sigmoid_and_rest(T(beta) * x);
    return s * (1 + T(beta) * x * rest);
  }
};
REGISTER_ACTIVATION(Silu);

}  // namespace
}  // namespace orrery::nn
