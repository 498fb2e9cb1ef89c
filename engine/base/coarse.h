// Floats whose functions are right to 2^-15 only: for what is rounded to bf16 next, which errs by 2^-9 itself.
// A formula that runs on them takes a fraction of the instructions on a GPU.  Include it before the formulas: they find
// these overloads by their qualified names.
//
// Arithmetic is that of float, and so are the functions that are not worth another form.  The others rest on two
// instructions of a card:
//   exp2_approximate(x)          2^x with a relative error of 2^-22 at most; 0 below the normal numbers
//   reciprocal_approximate(x)    1 / x with a relative error of 2^-23 at most; 0 below the normal numbers
//
// With e = exp(-|x|), which cannot overflow, sigmoid(|x|) = 1 / (1 + e) and sigmoid(-|x|) = e / (1 + e).  Of the normal
// distribution the lower tail is computed, in which one factor is fitted: with a = |x|
//   P(N < -a) = exp(-a^2 / 2) t S(t),   t = 1 / (1 + 0.31 a)
// because exp(a^2 / 2) P(N < -a) falls from 1/2 like 1 / a.  S has degree 5 and a relative error of 2^-17.7 for
// a <= 13.3, beyond which the tail is no normal number.  The density has the same exponential, which a compiler that
// needs both computes once.
//
// The error: exponents, of up to 88, are products that were rounded twice and have a rounded constant, so that their
// exponentials are wrong by 88 (2 + 1/2) 2^-24 < 2^-16.  S and the rest add less than 2^-17: 2^-15.4 together.
// Results below 2^-126 are 0.  tests/engine/base/coarse_test.cpp holds every function to that.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/base/host_device.h"
#include "engine/base/scalar.h"

namespace orrery {

struct Coarse {
  float value = 0;

  Coarse() = default;
  template <class Number>
  requires std::is_arithmetic_v<Number>
  HOST_DEVICE Coarse(Number x) : value(static_cast<float>(x)) {}

  HOST_DEVICE friend Coarse operator+(Coarse a, Coarse b) { return a.value + b.value; }
  HOST_DEVICE friend Coarse operator-(Coarse a, Coarse b) { return a.value - b.value; }
  HOST_DEVICE friend Coarse operator*(Coarse a, Coarse b) { return a.value * b.value; }
  HOST_DEVICE friend Coarse operator/(Coarse a, Coarse b) { return a.value / b.value; }
  HOST_DEVICE friend Coarse operator-(Coarse a) { return -a.value; }
  HOST_DEVICE Coarse& operator+=(Coarse b) { return *this = *this + b; }
  HOST_DEVICE Coarse& operator-=(Coarse b) { return *this = *this - b; }
  HOST_DEVICE Coarse& operator*=(Coarse b) { return *this = *this * b; }
  HOST_DEVICE Coarse& operator/=(Coarse b) { return *this = *this / b; }

  HOST_DEVICE friend bool operator<(Coarse a, Coarse b) { return a.value < b.value; }
  HOST_DEVICE friend bool operator>(Coarse a, Coarse b) { return a.value > b.value; }
  HOST_DEVICE friend bool operator<=(Coarse a, Coarse b) { return a.value <= b.value; }
  HOST_DEVICE friend bool operator>=(Coarse a, Coarse b) { return a.value >= b.value; }
  HOST_DEVICE friend bool operator==(Coarse a, Coarse b) { return a.value == b.value; }
};

// What a formula runs on, on a GPU, if its result is rounded to T next; and the number in it.
template <class T>
using BeforeRounding = std::conditional_t<std::is_same_v<T, bf16>, Coarse, Arithmetic<T>>;
template <class T>
HOST_DEVICE T number(T x) {
  return x;
}
HOST_DEVICE inline float number(Coarse x) { return x.value; }

namespace scalar {

HOST_DEVICE inline float exp2_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return x < -126 ? 0.f : std::exp2(x);
#endif
}
HOST_DEVICE inline float reciprocal_approximate(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = 1 / x;
  return std::fabs(y) < std::numeric_limits<float>::min() ? std::copysign(0.f, y) : y;
#endif
}

HOST_DEVICE inline Coarse abs(Coarse x) { return abs(x.value); }
HOST_DEVICE inline Coarse sqrt(Coarse x) { return sqrt(x.value); }
HOST_DEVICE inline Coarse exp(Coarse x) { return exp2_approximate(1.442695041f * x.value); }  // 1 / ln 2
HOST_DEVICE inline Coarse expm1(Coarse x) { return expm1(x.value); }
HOST_DEVICE inline Coarse log(Coarse x) { return log(x.value); }
HOST_DEVICE inline Coarse log1p(Coarse x) { return log1p(x.value); }
HOST_DEVICE inline Coarse tanh(Coarse x) { return tanh(x.value); }
HOST_DEVICE inline SigmoidAndRest<Coarse> sigmoid_and_rest(Coarse x) {
  const float e = exp(-abs(x)).value, large = reciprocal_approximate(1 + e), small = e * large;
  return {x.value < 0 ? small : large, x.value < 0 ? large : small};
}
HOST_DEVICE inline Coarse sigmoid(Coarse x) { return sigmoid_and_rest(x).sigmoid; }
HOST_DEVICE inline Coarse softplus(Coarse x) { return softplus(x.value); }
HOST_DEVICE inline Coarse erf(Coarse x) { return erf(x.value); }

namespace detail {
HOST_DEVICE inline float gaussian(Coarse x) {  // exp(-x^2 / 2)
  return exp2_approximate(x.value * x.value * -0.7213475204f);
}
}  // namespace detail
HOST_DEVICE inline Coarse normal_density(Coarse x) { return 0.3989422804f * detail::gaussian(x); }  // 1 / sqrt(2 pi)
HOST_DEVICE inline Coarse normal_distribution(Coarse x) {
  const float t = reciprocal_approximate(detail::fused(0.31f, abs(x.value), 1.f));
  const float s = detail::polynomial(t, 0.1238606670, 0.1204416043, 0.1334286136, 0.01574671499, 0.1804486933,
                                     -0.07392861364);
  const float tail = detail::gaussian(x) * t * s;
  return x.value > 0 ? 1 - tail : tail;
}

HOST_DEVICE inline Coarse sin(Coarse x) { return sin(x.value); }
HOST_DEVICE inline Coarse cos(Coarse x) { return cos(x.value); }
HOST_DEVICE inline Coarse atan(Coarse x) { return atan(x.value); }

}  // namespace scalar
}  // namespace orrery
