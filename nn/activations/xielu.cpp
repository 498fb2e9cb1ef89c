// xIELU, the expanded integral of ELU: a slope that rises linearly for positive x and falls like exp(x) for negative x.
//   f(x)  = a x^2 + beta x                    if x > 0,    a = softplus(p0) > 0
//           n (exp(x) - 1 - x) + beta x       else,        n = beta + softplus(p1) > beta
//   f'(x) = 2 a x + beta                      if x > 0
//           n (exp(x) - 1) + beta             else
//   df/dp0 = sigmoid(p0) x^2 if x > 0, else 0;   df/dp1 = 0 if x > 0, else sigmoid(p1) (exp(x) - 1 - x)
// Kink: 0, where the second derivative jumps from n to 2 a; the slope is beta there.
// p starts where a = positive and n = negative, both 0.8:  p0 = log(exp(a) - 1),  p1 = log(exp(n - beta) - 1).
#include "nn/activation_kernels.h"

namespace orrery::nn {
namespace {

struct Xielu {
  static inline const ActivationInfo info{
      .name = "xielu",
      .formula = "a * x^2 + beta * x if x > 0 else n * (exp(x) - 1 - x) + beta * x",
      .source = "Huang and Schlag 2024, arXiv:2411.13010",
      .constants = {{"positive", 0.8, above(0)}, {"negative", 0.8, above(0)}, {"beta", 0.5, at_least(0)}},
      .parameters = {"p0", "p1"},
      .kinks = {0},
      .limits = {ActivationInfo::infinity, ActivationInfo::infinity},
  };
  static constexpr int parameters = 2;
  double positive = 0.8, negative = 0.8, beta = 0.5;

  void initial_parameters(double* p) const {
    check(negative > beta, "xielu: negative (", negative, ") must be above beta (", beta, ")");
    p[0] = scalar::log(scalar::expm1(positive));
    p[1] = scalar::log(scalar::expm1(negative - beta));
  }
  template <class T>
  HOST_DEVICE T value(T x, const T* p) const {
    const T a = scalar::softplus(p[0]), n = T(beta) + scalar::softplus(p[1]);
    return (x > 0 ? a * x * x : n * (scalar::expm1(x) - x)) + T(beta) * x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x, const T* p) const {
    const T a = scalar::softplus(p[0]), n = T(beta) + scalar::softplus(p[1]);
    return (x > 0 ? 2 * a * x : n * scalar::expm1(x)) + T(beta);
  }
  template <class T>
  HOST_DEVICE void parameter_derivatives(T x, const T* p, T* out) const {
    out[0] = x > 0 ? scalar::sigmoid(p[0]) * x * x : T(0);
    out[1] = x > 0 ? T(0) : scalar::sigmoid(p[1]) * (scalar::expm1(x) - x);
  }
};
REGISTER_LEARNED_ACTIVATION(Xielu);

}  // namespace
}  // namespace orrery::nn
