// Tanh GELU: the approximation of GELU that GPT-2, BERT and Flax use.
//   f(x)  = x (1 + tanh(u)) / 2 = x s,     u = sqrt(2 / pi) (x + 0.044715 x^3),   s = sigmoid(2 u)
//   f'(x) = s + x s (1 - s) 2 u',          u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
// since (1 + tanh(u)) / 2 = sigmoid(2 u), which does not cancel for negative x. It differs from gelu by up to 5e-4.
//
// The short form takes 7 instructions for f and 11 for both:
//   e = 2^(-2 u / ln 2),   s = 1 / (1 + e),   f(x) = x s,   f'(x) = s + (f(x) - f(x) s) 2 u'
// 1 - s cancels where s is almost 1, and 2 u' grows like x^2. But from x = 5 on e < 2^-24, so 1 + e, s and f' are 1
// exactly, and below, the error is less than 2^-24 * 5 * 2 u'(5) < 2^-18.
#include "nn/formulas/kernels.h"

namespace orrery::nn {
namespace {

struct GeluTanh {
  static inline const ActivationInfo info{
      .name = "gelu_tanh",
      .formula = "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2",
      .source = "Hendrycks and Gimpel 2016, arXiv:1606.08415",
      .aliases = {"gelu_new"},
      .limits = {0, ActivationInfo::infinity},
  };

  template <class T>
  HOST_DEVICE T value(T x) const {
    return x * scalar::sigmoid(twice_u(x));
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const auto [s, rest] = scalar::sigmoid_and_rest(twice_u(x));  // 1 - s would cancel
    return s + x * s * rest * (T(root) * (1 + T(3 * cubic) * x * x));
  }
  HOST_DEVICE Values<float, 2> short_form(float x) const {
    using scalar::detail::fused;
    constexpr auto a = static_cast<float>(root), b = static_cast<float>(3 * root * cubic);  // 2 u' = a + b x^2
    constexpr float log2_e = 1.442695041f;
    const float square = x * x;
    const float s = scalar::reciprocal_approximate(
        1 + scalar::exp2_approximate(x * fused(-log2_e * b / 3, square, -log2_e * a)));
    const float value = x * s;
    return {{value, fused(fused(-value, s, value), fused(b, square, a), s)}};
  }

 private:
  static constexpr double root = 1.5957691216057307117598;  // 2 sqrt(2 / pi)
  static constexpr double cubic = 0.044715;

  template <class T>
  HOST_DEVICE static T twice_u(T x) {
    return T(root) * (x + T(cubic) * x * x * x);
  }
};
REGISTER_ACTIVATION(GeluTanh);

}  // namespace
}  // namespace orrery::nn
