// The elementary functions that formulas are written in, for float and double, on both devices.
//
// Branch-free: choices are ternaries between values that are both there, so loops over these functions vectorize;
// std::fmin, std::fmax and std::nearbyint would prevent that.  NaN passes through, clamps included: `x > most ? most :
// x` keeps it.  All are right at infinities.  Multiply-adds are written as `fused`, so that the accuracy rests on no
// compiler flag and is the same on a GPU.
//
// Beside each function stands a bound of its error in units of the last place, float / double, to which
// tests/engine/scalar_test.cpp holds it over the whole range.  The constants are minimax fits made with 60 digits; the
// degrees that are given are those for float / double.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

#include "engine/host_device.h"

namespace orrery::scalar {

namespace detail {

template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float to_whole = 12582912.0f;  // 1.5 * 2^23: x + to_whole is x rounded, its low bits are the integer
  static constexpr float ln2_low = -1.904654300e-9f, pi_middle = -8.742277657e-8f, pi_low = -3.430249021e-15f;
  static constexpr float half_pi_low = -4.371138829e-8f;
  static constexpr float exp_least = -104, exp_most = 89, expm1_least = -40;  // beyond: 0, infinity, -1
  static constexpr float erf_most = 4, normal_most = 15;                      // beyond: 1
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double to_whole = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double ln2_low = 2.319046813846299558e-17, pi_middle = 1.224646799147353207e-16,
                          pi_low = -2.994769809718339666e-33;
  static constexpr double half_pi_low = 6.123233995736766036e-17;
  static constexpr double exp_least = -746, exp_most = 710, expm1_least = -60;
  static constexpr double erf_most = 6, normal_most = 39;
};

template <class T>
using Bits = typename Format<T>::Bits;
template <class T>
HOST_DEVICE inline Bits<T> bits_of(T x) {
  return std::bit_cast<Bits<T>>(x);
}
template <class T>
HOST_DEVICE inline T from_bits(Bits<T> bits) {
  return std::bit_cast<T>(bits);
}
template <class T>
HOST_DEVICE inline T with_sign_of(T size, T x) {
  constexpr Bits<T> sign = Bits<T>(1) << (8 * sizeof(T) - 1);
  return from_bits<T>((bits_of(size) & ~sign) | (bits_of(x) & sign));
}

HOST_DEVICE inline float fused(float a, float b, float c) { return ::fmaf(a, b, c); }  // a b + c, rounded once
HOST_DEVICE inline double fused(double a, double b, double c) { return ::fma(a, b, c); }

template <class T>
HOST_DEVICE inline T polynomial(T, double c) {
  return T(c);
}
template <class T, class... C>
HOST_DEVICE inline T polynomial(T x, double c, C... higher) {  // c + x (next + x (...))
  return fused(x, polynomial(x, higher...), T(c));
}

// exp(x) = (1 + fraction) 2^n with n the integer nearest to x / ln 2; x within the limits of Format.
template <class T>
struct Exponential {
  T fraction;
  Bits<T> biased;  // n + 2 bias, which is positive
};
template <class T>
HOST_DEVICE inline Exponential<T> exponential(T x) {
  using F = Format<T>;
  const T shifted = fused(x, T(1.4426950408889634074), F::to_whole);  // 1 / ln 2
  const T n = shifted - F::to_whole;
  const T r = fused(-n, F::ln2_low, fused(-n, T(0.69314718055994530942), x));  // the inner one is exact
  T q;                                                                         // (exp(r) - 1 - r) / r^2, degree 5 / 10
  if constexpr (sizeof(T) == 4) {
    q = polynomial(r, 0.5000000047, 0.1666666682, 0.04166635407, 0.00833327289, 0.001394105775, 0.0001991429232);
  } else {
    q = polynomial(r, 0.49999999999999999986, 0.16666666666666676635, 0.041666666666666701192, 0.0083333333333215812114,
                   0.0013888888888866875783, 0.00019841269886259611803, 0.000024801587360538306117,
                   2.7557244068096517722e-6, 2.7557242743287197769e-7, 2.5109088386935333572e-8,
                   2.0924455008749854855e-9);
  }
  return {fused(r * q, r, r), static_cast<Bits<T>>(bits_of(shifted) - bits_of(F::to_whole) + 2 * F::bias)};
}
template <class T>
HOST_DEVICE inline T power_of_two(Bits<T> biased) {  // 2^(biased - bias), within the normal numbers
  return from_bits<T>(biased << Format<T>::mantissa);
}

// log(x) + correction / x for finite x > 0; the correction is what the rounding of x has lost.
template <class T>
HOST_DEVICE inline T log_corrected(T x, T correction) {
  using F = Format<T>;
  constexpr Bits<T> one = Bits<T>(F::bias) << F::mantissa, low = (Bits<T>(1) << F::mantissa) - 1;
  const Bits<T> root_half = bits_of(T(0.70710678118654752440));
  constexpr T least_normal = std::numeric_limits<T>::min();
  const T scaled = x * (x < least_normal ? T(4 * (low + 1)) : T(1));
  const T bias = x < least_normal ? T(F::bias + F::mantissa + 2) : T(F::bias);
  const Bits<T> moved = bits_of(scaled) + (one - root_half);  // x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2))
  const T two_to_mantissa = T(low + 1);
  const T n = from_bits<T>(bits_of(two_to_mantissa) | (moved >> F::mantissa)) - two_to_mantissa - bias;
  const T f = from_bits<T>((moved & low) + root_half) - 1;
  const T s = f / (2 + f), z = s * s, half_square = T(0.5) * f * f;
  T p;  // log(1 + f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + z p(z)), degree 2 / 6
  if constexpr (sizeof(T) == 4) {
    p = polynomial(z, 0.666667786, 0.3997603383, 0.299268536);
  } else {
    p = polynomial(z, 0.66666666666667098137, 0.39999999999517178887, 0.28571428730011243091, 0.22222199005402710486,
                   0.1818357643038446635, 0.15313030191593541286, 0.14811936110555634891);
  }
  const T rest = fused(n, F::ln2_low, correction / x);
  const T tail = fused(T(-0.5) * f, f, fused(s, fused(z, p, half_square), rest));
  return fused(n, T(0.69314718055994530942), f + tail);
}

// sin(r) for |r| <= pi / 2
template <class T>
HOST_DEVICE inline T sine_of_reduced(T r) {
  r = r > 2 ? T(2) : r;  // far beyond the accurate range the reduction fails; the result stays bounded
  r = r < -2 ? T(-2) : r;
  const T z = r * r;
  T p;  // (sin(r) - r) / r^3, degree 3 / 7 in r^2
  if constexpr (sizeof(T) == 4) {
    p = polynomial(z, -0.1666666107, 0.008333083544, -0.0001980989378, 2.60501962e-6);
  } else {
    p = polynomial(z, -0.16666666666666666125, 0.0083333333333332390742, -0.00019841269841221366432,
                   2.7557319212678148952e-6, -2.5052106974586170017e-8, 1.6058943231620701776e-10,
                   -7.6430495158688011991e-13, 2.7214937064771178532e-15);
  }
  return fused(r * z, p, r);
}
// x - turns * pi; exact to far beyond the last place while turns < 2^mantissa / 2
template <class T>
HOST_DEVICE inline T without_half_turns(T x, T turns) {
  const T r = fused(-turns, Format<T>::pi_middle, fused(-turns, T(3.14159265358979323846), x));
  return fused(-turns, Format<T>::pi_low, r);
}

}  // namespace detail

template <std::floating_point T>
HOST_DEVICE inline T abs(T x) {
  return std::fabs(x);
}
// 0.5 ulp.  Loops over it vectorize because the build sets -fno-math-errno.
template <std::floating_point T>
HOST_DEVICE inline T sqrt(T x) {
  return std::sqrt(x);
}

// 1 / 1 ulp, subnormal results included
template <std::floating_point T>
HOST_DEVICE inline T exp(T x) {
  using F = detail::Format<T>;
  x = x > F::exp_most ? F::exp_most : x;
  x = x < F::exp_least ? F::exp_least : x;
  const detail::Exponential<T> e = detail::exponential(x);
  const detail::Bits<T> half = e.biased >> 1;  // in two steps: 2^n itself may be no normal number
  return (1 + e.fraction) * detail::power_of_two<T>(half) * detail::power_of_two<T>(e.biased - half);
}

// exp(x) - 1, 2 / 2 ulp
template <std::floating_point T>
HOST_DEVICE inline T expm1(T x) {
  using F = detail::Format<T>;
  x = x > F::exp_most ? F::exp_most : x;
  x = x < F::expm1_least ? F::expm1_least : x;
  const detail::Exponential<T> e = detail::exponential(x);
  const T half_power = detail::power_of_two<T>(e.biased - (F::bias + 1));  // 2^(n-1), because 2^n may overflow
  return 2 * detail::fused(e.fraction, half_power, half_power - T(0.5));
}

// 1 / 1 ulp, subnormal arguments included; -infinity at 0, NaN below
template <std::floating_point T>
HOST_DEVICE inline T log(T x) {
  constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T y = detail::log_corrected(x, T(0));
  const T at_least_zero = x > 0 ? y : x < 0 ? nan : -infinity;
  return x < infinity ? at_least_zero : x;
}

// log(1 + x), 1 / 1 ulp
template <std::floating_point T>
HOST_DEVICE inline T log1p(T x) {
  constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T u = 1 + x;
  const T y = detail::log_corrected(u, x - (u - 1));
  const T above_minus_one = u > 0 ? y : u < 0 ? nan : -infinity;
  return x < infinity ? above_minus_one : x;
}

// 3 / 3 ulp
template <std::floating_point T>
HOST_DEVICE inline T tanh(T x) {
  const T e = expm1(-2 * abs(x));
  return detail::with_sign_of(e / (2 + e), x);
}

// 1 / (1 + exp(-x)), 3 / 3 ulp in the lower tail too
template <std::floating_point T>
HOST_DEVICE inline T sigmoid(T x) {
  const T z = exp(-abs(x));
  return (x < 0 ? z : T(1)) / (1 + z);
}

// log(1 + exp(x)), 2 / 2 ulp
template <std::floating_point T>
HOST_DEVICE inline T softplus(T x) {
  return (x > 0 ? x : T(0)) + log1p(exp(-abs(x)));
}

// erf(a) = 1 - exp(-a (S0 + S(a))) for a >= 0, 2 / 2 ulp
template <std::floating_point T>
HOST_DEVICE inline T erf(T x) {
  T a = abs(x);
  a = a > detail::Format<T>::erf_most ? detail::Format<T>::erf_most : a;
  const T s0 = T(1.1283791670955125586);  // near 2 / sqrt(pi); the rest of it stands first in S
  T s;                                    // -log(1 - erf(a)) / a - s0, degree 10 / 24
  if constexpr (sizeof(T) == 4) {
    s = detail::polynomial(a, -5.89654206e-8, 0.6366198179, 0.1027715966, -0.01911996613, -0.0002451628061,
                           0.001784113768, -0.0007233480047, 0.0001556328686, -0.00001659727525, 1.633943943e-7,
                           9.241035561e-8);
  } else {
    s = detail::polynomial(a, 9.7393007e-18, 0.63661977236758360891, 0.1027726033017888139, -0.019128447005071725055,
                           -0.0002091946948245119117, 0.0016962063856055927185, -0.00059012555218106866574,
                           0.000025878601719361791634, 0.000064491867608989062878, -0.000029724059691273626243,
                           3.4072864688038237768e-6, 2.8351148027657178219e-6, -1.7415232495796563433e-6,
                           3.3634645241299983969e-7, 1.3719291452480134557e-7, -1.4176703683781830107e-7,
                           6.5735396699343059386e-8, -2.0963223071921616131e-8, 4.9978402494049808837e-9,
                           -9.0824824717214154224e-10, 1.2484470033145130434e-10, -1.2611403688538219886e-11,
                           8.8458844503471640576e-13, -3.8506749088590212053e-14, 7.8345192936868766397e-16);
  }
  return detail::with_sign_of(expm1(-detail::fused(a, s0, a * s)), x);
}

namespace detail {
// exp(-x^2 / 2)
template <class T>
HOST_DEVICE inline T gaussian(T x) {
  T a = std::fabs(x);
  a = a > Format<T>::normal_most ? Format<T>::normal_most : a;
  const T square = a * a, lost = fused(a, a, -square);  // without it the rounding of x^2 costs x^2 / 2 ulp
  const T e = scalar::exp(T(-0.5) * square);
  return fused(e, T(-0.5) * lost, e);
}
}  // namespace detail

// The density of N(0, 1): exp(-x^2 / 2) / sqrt(2 pi), 3 / 3 ulp
template <std::floating_point T>
HOST_DEVICE inline T normal_density(T x) {
  return T(0.39894228040143267794) * detail::gaussian(x);
}

// The probability that N(0, 1) is below x: (1 + erf(x / sqrt(2))) / 2, 6 / 9 ulp in the lower tail too
template <std::floating_point T>
HOST_DEVICE inline T normal_distribution(T x) {
  T a = abs(x);
  a = a > detail::Format<T>::normal_most ? detail::Format<T>::normal_most : a;
  T p, q;  // p / q = P(N > a) exp(a^2 / 2), degrees 4 by 5 / 10 by 11, every term positive
  if constexpr (sizeof(T) == 4) {
    p = detail::polynomial(a, 0.500000003, 0.4384960749, 0.183384324, 0.04068357102, 0.004123796805);
    q = detail::polynomial(a, 1.0, 1.674877136, 1.203122412, 0.4698645166, 0.1019849682, 0.01033670761);
  } else {
    p = detail::polynomial(a, 0.50000000000000000046, 0.827875314457941333, 0.67953291274262814627,
                           0.35728691375565416984, 0.13201811451675647868, 0.035658366852717705919,
                           0.0071205962604657674455, 0.0010393192555011738455, 0.00010652476916818133399,
                           6.972280358222619698e-6, 2.2404370201476024336e-7);
    q = detail::polynomial(a, 1.0, 2.4536351897187482323, 2.8167834612044471022, 2.0011857877395553244,
                           0.97993228700565960487, 0.34824059921913489036, 0.091952504075937520991,
                           0.018114582719421680916, 0.0026226639474978751183, 0.00026757959262053749814,
                           0.000017476915084605289803, 5.615942782230707707e-7);
  }
  const T tail = detail::gaussian(a) * (p / q);
  return x > 0 ? 1 - tail : tail;
}

// 2 / 2 ulp for |x| <= 1e4; without meaning, yet within [-1, 1], beyond 1e7 / 1e15
template <std::floating_point T>
HOST_DEVICE inline T sin(T x) {
  using F = detail::Format<T>;
  const T shifted = detail::fused(x, T(0.31830988618379067154), F::to_whole);  // 1 / pi
  const T y = detail::sine_of_reduced(detail::without_half_turns(x, shifted - F::to_whole));
  const detail::Bits<T> odd = detail::bits_of(shifted) << (8 * sizeof(T) - 1);
  return detail::from_bits<T>(detail::bits_of(y) ^ odd);
}
// 3 / 3 ulp, in the same ranges
template <std::floating_point T>
HOST_DEVICE inline T cos(T x) {
  using F = detail::Format<T>;
  const T shifted = detail::fused(x, T(0.31830988618379067154), T(-0.5)) + F::to_whole;
  const T y = detail::sine_of_reduced(detail::without_half_turns(x, shifted - F::to_whole + T(0.5)));
  const detail::Bits<T> even = ~detail::bits_of(shifted) << (8 * sizeof(T) - 1);
  return detail::from_bits<T>(detail::bits_of(y) ^ even);
}

// 2 / 2 ulp
template <std::floating_point T>
HOST_DEVICE inline T atan(T x) {
  const T a = abs(x);
  const T t = (a > 1 ? T(-1) : a) / (a > 1 ? a : T(1));  // atan(a) = pi/2 - atan(1/a)
  const T z = t * t;
  T p;  // (atan(t) - t) / t^3, degree 8 / 19 in t^2
  if constexpr (sizeof(T) == 4) {
    p = detail::polynomial(z, -0.3333331237, 0.1999884219, -0.142663464, 0.1095858243, -0.08410654575, 0.05791354187,
                           -0.03099129043, 0.0107485003, -0.0017437011);
  } else {
    p = detail::polynomial(
        z, -0.33333333333333244852, 0.1999999999997629237, -0.14285714283804405409, 0.11111111038037119401,
        -0.090909074719373412167, 0.076922844954887255978, -0.06666436182184332442, 0.058806875674038857471,
        -0.052541045852524388038, 0.047239281224056217589, -0.04222474233506024598, 0.036692024380284254572,
        -0.029958535502132479185, 0.022023958249743199071, -0.013912900573840197889, 0.0071891111714649127223,
        -0.0028733622963458704174, 0.00082467730515144823966, -0.00015020024722138883148, 0.00001297957740585580913);
  }
  const T low = detail::fused(t * z, p, a > 1 ? detail::Format<T>::half_pi_low : T(0)) + t;
  return detail::with_sign_of((a > 1 ? T(1.57079632679489661923) : T(0)) + low, x);
}

}  // namespace orrery::scalar
