// A float whose functions are accurate to 2^-15. Use it for results that are rounded to bf16 next,
// an error of 2^-9. Formulas then take a fraction of the instructions. Include it before the
// formulas: they find these overloads by their qualified names.
//
// Arithmetic is that of float, as are functions for which another form is not worthwhile. The
// others use two GPU instructions, which a CPU replaces by a polynomial and a division:
//   exp2_approximate(x)        2^x with an error of 2^-22 at most, on a CPU 2^-18.3; 0 below 2^-126, on a CPU there too
//   reciprocal_approximate(x)  1 / x with a relative error of 2^-23 at most; on a GPU 0 below the normal numbers
//
// e = exp(-|x|) cannot overflow: sigmoid(|x|) = 1 / (1 + e) and sigmoid(-|x|) = e / (1 + e), which
// a compiler computes once for sigmoid(x) and 1 - sigmoid(x). tanh and erf are x P(x^2) / Q(x^2),
// fitted to 5.9 and 3.15, where they are 1 except for 2^-16 and 2^-17, within 2^-17.2 and 2^-19.2.
// The normal distribution is computed by its lower tail, with one fitted factor: with a = |x|
//   P(N < -a) = exp(-a^2 / 2) t S(t),   t = 1 / (1 + 0.31 a)
// because exp(a^2 / 2) P(N < -a) falls from 1/2 like 1 / a. S has degree 5 and a relative error of
// 2^-17.7 for a <= 13.3; beyond, the tail is not a normal number. The density has the same
// exponential, which a compiler computes once if both are needed.
//
// Exponents (up to 88) are products rounded twice, with a rounded constant: exponentials err by
// 88 (2 + 1/2) 2^-24 < 2^-16. S, the CPU polynomial and the rest add less than 2^-16.4: 2^-15.2
// together. Results below 2^-126 may be 0. Tests: tests/engine/math/approx_float_test.cpp.
#pragma once

#include <cmath>
#include <type_traits>

#include "engine/math/scalar.h"
#include "engine/types/dtype.h"
#include "engine/types/host_device.h"

namespace orrery {

struct ApproxFloat {
  float value = 0;

  ApproxFloat() = default;
  template <class Number>
  requires std::is_arithmetic_v<Number> HOST_DEVICE ApproxFloat(Number x) : value(static_cast<float>(x)) {}

  HOST_DEVICE friend ApproxFloat operator+(ApproxFloat a, ApproxFloat b) { return a.value + b.value; }
  HOST_DEVICE friend ApproxFloat operator-(ApproxFloat a, ApproxFloat b) { return a.value - b.value; }
  HOST_DEVICE friend ApproxFloat operator*(ApproxFloat a, ApproxFloat b) { return a.value * b.value; }
  HOST_DEVICE friend ApproxFloat operator/(ApproxFloat a, ApproxFloat b) { return a.value / b.value; }
  HOST_DEVICE friend ApproxFloat operator-(ApproxFloat a) { return -a.value; }
  HOST_DEVICE ApproxFloat& operator+=(ApproxFloat b) { return *this = *this + b; }
  HOST_DEVICE ApproxFloat& operator-=(ApproxFloat b) { return *this = *this - b; }
  HOST_DEVICE ApproxFloat& operator*=(ApproxFloat b) { return *this = *this * b; }
  HOST_DEVICE ApproxFloat& operator/=(ApproxFloat b) { return *this = *this / b; }

  HOST_DEVICE friend bool operator<(ApproxFloat a, ApproxFloat b) { return a.value < b.value; }
  HOST_DEVICE friend bool operator>(ApproxFloat a, ApproxFloat b) { return a.value > b.value; }
  HOST_DEVICE friend bool operator<=(ApproxFloat a, ApproxFloat b) { return a.value <= b.value; }
  HOST_DEVICE friend bool operator>=(ApproxFloat a, ApproxFloat b) { return a.value >= b.value; }
  HOST_DEVICE friend bool operator==(ApproxFloat a, ApproxFloat b) { return a.value == b.value; }
};

// The type for formulas whose result is rounded to T next; to_float() returns its plain value.
template <class T>
using FormulaFloat = std::conditional_t<std::is_same_v<T, bf16>, ApproxFloat, Arithmetic<T>>;
template <class T>
HOST_DEVICE T to_float(T x) {
  return x;
}
HOST_DEVICE inline float to_float(ApproxFloat x) { return x.value; }
template <class T, int N>
HOST_DEVICE auto to_float(const Values<T, N>& x) {
  Values<decltype(to_float(x[0])), N> numbers;
  for (int k = 0; k < N; ++k) numbers[k] = to_float(x[k]);
  return numbers;
}

// The function f on plain numbers, computed in FormulaFloat<T>: its result is rounded to T next.
template <class T, class F>
struct ApproxFunction {
  F f;
  template <class... A>
  HOST_DEVICE auto operator()(A... x) const {
    return to_float(f(FormulaFloat<T>(x)...));
  }
};
template <class T, class F>
ApproxFunction<T, F> approx_function(const F& f) {
  return {f};
}

namespace scalar {

namespace detail {
#if defined(__CUDA_ARCH__)
HOST_DEVICE inline float exp2_instruction(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
// 2^n 2^r for -126 <= x <= 128.25, with n the integer below x and r = x - n; infinite from x = 128.
inline float exp2_in_range(float x) {
  constexpr float to_whole = Format<float>::to_whole + 127;
  const float shifted = x - 0.5f + to_whole, r = x - (shifted - to_whole);
  const float power = from_bits<float>(bits_of(shifted) << Format<float>::mantissa);
  return polynomial(r, 1, 0.6930448449, 0.2412802049, 0.05224247403, 0.01342668436) * power;
}
#endif
}  // namespace detail

HOST_DEVICE inline float exp2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  return detail::exp2_instruction(x);
#else
  constexpr float infinite = 128.25f;
  const float size = infinite < abs(x) ? infinite : abs(x), y = detail::exp2_in_range(detail::with_sign_of(size, x));
  return x < -126 ? 0.f : y;
#endif
}
// Returns exp2_approximate(x) for x <= 0.
HOST_DEVICE inline float exp2_negative(float x) {
#if defined(__CUDA_ARCH__)
  return detail::exp2_instruction(x);
#else
  const float y = detail::exp2_in_range(x < -126 ? -126.f : x);
  return x < -126 ? 0.f : y;
#endif
}
HOST_DEVICE inline float reciprocal_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

namespace detail {
// x P(x^2) / Q(x^2) for |x| <= `limit`; beyond, its value at `limit` with the sign of x.
template <class P, class Q>
HOST_DEVICE inline float odd_quotient(float x, float limit, const P& p, const Q& q) {
  const float size = limit < abs(x) ? limit : abs(x), within = with_sign_of(size, x), square = within * within;
  return within * p(square) * reciprocal_approximate(q(square));
}
HOST_DEVICE inline float gaussian(ApproxFloat x) {  // exp(-x^2 / 2)
  return exp2_negative(x.value * x.value * -0.7213475204f);
}
}  // namespace detail

HOST_DEVICE inline ApproxFloat abs(ApproxFloat x) { return abs(x.value); }
HOST_DEVICE inline ApproxFloat sqrt(ApproxFloat x) { return sqrt(x.value); }
HOST_DEVICE inline ApproxFloat exp(ApproxFloat x) { return exp2_approximate(1.442695041f * x.value); }  // 1 / ln 2
HOST_DEVICE inline ApproxFloat expm1(ApproxFloat x) { return expm1(x.value); }
HOST_DEVICE inline ApproxFloat log(ApproxFloat x) { return log(x.value); }
HOST_DEVICE inline ApproxFloat log1p(ApproxFloat x) { return log1p(x.value); }
HOST_DEVICE inline ApproxFloat tanh(ApproxFloat x) {
  return detail::odd_quotient(
      x.value, 5.9f, [](float z) { return detail::polynomial(z, 0.9999934575, 0.1150182104, 0.001526850358); },
      [](float z) { return detail::polynomial(z, 1, 0.4483061728, 0.01768259096, 5.705975287e-05); });
}
HOST_DEVICE inline SigmoidAndRest<ApproxFloat> sigmoid_and_rest(ApproxFloat x) {
  const float e = exp2_negative(-1.442695041f * abs(x.value));
  const float large = reciprocal_approximate(1 + e), small = e * large;
  return {x.value < 0 ? small : large, x.value < 0 ? large : small};
}
HOST_DEVICE inline ApproxFloat sigmoid(ApproxFloat x) { return sigmoid_and_rest(x).sigmoid; }
HOST_DEVICE inline ApproxFloat softplus(ApproxFloat x) { return softplus(x.value); }
HOST_DEVICE inline ApproxFloat erf(ApproxFloat x) {
  return detail::odd_quotient(
      x.value, 3.15f,
      [](float z) { return detail::polynomial(z, 1.128380974, 0.1539743997, 0.04328126749, 0.0007540508013); },
      [](float z) { return detail::polynomial(z, 1, 0.4698279, 0.09481707751, 0.009328839177); });
}
HOST_DEVICE inline ApproxFloat normal_density(ApproxFloat x) {
  return 0.3989422804f * detail::gaussian(x);
}  // 1 / sqrt(2 pi)
HOST_DEVICE inline ApproxFloat normal_distribution(ApproxFloat x) {
  const float t = reciprocal_approximate(detail::fused(0.31f, abs(x.value), 1.f));
  const float s =
      detail::polynomial(t, 0.1238606670, 0.1204416043, 0.1334286136, 0.01574671499, 0.1804486933, -0.07392861364);
  const float tail = detail::gaussian(x) * t * s;
  return x.value > 0 ? 1 - tail : tail;
}

HOST_DEVICE inline ApproxFloat sin(ApproxFloat x) { return sin(x.value); }
HOST_DEVICE inline ApproxFloat cos(ApproxFloat x) { return cos(x.value); }
HOST_DEVICE inline ApproxFloat atan(ApproxFloat x) { return atan(x.value); }

}  // namespace scalar
}  // namespace orrery
