// xIELU, expanded integral of ELU: f' is linear in x for positive x, in exp(x) for negative x.
//   f(x; a, b) = a x^2 + beta x                          if x > 0
//                n (exp(x) - 1 - x) + beta x             else,      n = beta + b
//   df/dx      = 2 a x + beta                            if x > 0
//                n (exp(x) - 1) + beta                   else
//   df/da      = x^2 if x > 0, else 0;    df/db = 0 if x > 0, else exp(x) - 1 - x
// a = softplus(p0) and b = softplus(p1) are positive; p is trained. Initially a = 0.8 and n = 0.8.
// Kink: 0, where the second derivative jumps from n to 2 a; f'(0) = beta.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct Xielu {
  static inline const ActivationInfo info{
      .name = "xielu",
      .formula = "a * x^2 + beta * x if x > 0 else (beta + b) * (exp(x) - 1 - x) + beta * x",
      .source = "Huang and Schlag 2024, arXiv:2411.13010",
      .constants = {{"positive", 0.8, above(0, 100)}, {"negative", 0.8, above(0, 100)}, {"beta", 0.5, between(0, 100)}},
      .parameters = {"a", "b"},
      .positive = true,
      .kinks = {0},
      .limits = {ActivationInfo::infinity, ActivationInfo::infinity},
  };
  static constexpr int parameters = 2;
  double positive = 0.8, negative = 0.8, beta = 0.5;  // positive, negative: initial a and n

  void initial_parameters(double* p) const {
    check(negative > beta, "xielu: negative (", negative, ") must be above beta (", beta, ")");
    p[0] = positive;
    p[1] = negative - beta;
  }
  template <class T>
  HOST_DEVICE T value(T x, const T* p) const {
    return (x > 0 ? p[0] * x * x : (T(beta) + p[1]) * (scalar::expm1(x) - x)) + T(beta) * x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x, const T* p) const {
    return (x > 0 ? 2 * p[0] * x : (T(beta) + p[1]) * scalar::expm1(x)) + T(beta);
  }
  template <class T>
  HOST_DEVICE void parameter_derivatives(T x, const T*, T* out) const {
    out[0] = x > 0 ? x * x : T(0);
    out[1] = x > 0 ? T(0) : scalar::expm1(x) - x;
  }
};
REGISTER_ACTIVATION(Xielu);

}  // namespace
}  // namespace orrery::nn
