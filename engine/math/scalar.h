// The elementary functions that formulas are written in, for float and double, on both devices.
//
// Branch-free: ternaries choose between two computed values, so loops over these functions
// vectorize; std::fmin, std::fmax and std::nearbyint would prevent that. NaN propagates, also
// through clamps: `x > high ? high : x` keeps it. All are correct at infinities. Multiply-adds are
// written as `fused`, so accuracy does not depend on compiler flags and is equal on a GPU.
//
// Each function has a bound of its error in units of the last place (ulp), float / double, which
// tests/engine/math/scalar_test.cpp checks over the whole range. Constants are minimax fits, made
// with 60 digits; degrees are given for float / double.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

#include "engine/types/host_device.h"

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
  static constexpr float exp_min = -104, exp_max = 89, expm1_min = -40;   // beyond: 0, infinity, -1
  static constexpr float sigmoid_max = 40, erf_max = 4, normal_max = 15;  // beyond: 1
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double to_whole = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double ln2_low = 2.319046813846299558e-17, pi_middle = 1.224646799147353207e-16,
                          pi_low = -2.994769809718339666e-33;
  static constexpr double half_pi_low = 6.123233995736766036e-17;
  static constexpr double exp_min = -746, exp_max = 710, expm1_min = -60;
  static constexpr double sigmoid_max = 40, erf_max = 6, normal_max = 39;
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

// A polynomial whose highest coefficient is 1, which saves a product.
template <class T>
HOST_DEVICE inline T monic(T x, double c) {
  return x + T(c);
}
template <class T, class... C>
HOST_DEVICE inline T monic(T x, double c, C... higher) {
  return fused(x, monic(x, higher...), T(c));
}

// Both comparisons use x itself: for dependent selections g++ emits twice the instructions.
template <class T>
HOST_DEVICE inline T clamp(T x, T low, T high) {
  const T at_least = x < low ? low : x;
  return x > high ? high : at_least;
}

// exp(x) = exp(rest) 2^n with n the integer nearest to x / ln 2; x within the limits of Format.
template <class T>
struct Exponential {
  T rest;
  T q;           // (exp(rest) - 1 - rest) / rest^2
  Bits<T> bits;  // its low bits are those of n + offset
  HOST_DEVICE T mantissa() const { return fused(rest, fused(rest, q, T(1)), T(1)); }
  HOST_DEVICE T mantissa_minus_one() const { return fused(rest * q, rest, rest); }
  // 2^(n + offset - bias), if that is a normal number; shifting drops all but the low bits.
  HOST_DEVICE T power() const { return from_bits<T>(bits << Format<T>::mantissa); }
};
template <class T>
HOST_DEVICE inline Exponential<T> exponential(T x, int offset) {
  using F = Format<T>;
  const T to_whole = F::to_whole + static_cast<T>(offset);
  const T shifted = fused(x, T(1.4426950408889634074), to_whole);  // 1 / ln 2
  const T n = shifted - to_whole;
  const T r = fused(-n, F::ln2_low, fused(-n, T(0.69314718055994530942), x));  // the inner one is exact
  T q;                                                                         // degree 4 / 9
  if constexpr (sizeof(T) == 4) {
    q = polynomial(r, 0.49999993453, 0.16666520693, 0.041668386899, 0.0083687096818, 0.001381464171);
  } else {
    q = polynomial(r, 0.500000000000001021428, 0.166666666666666745217, 0.0416666666665221064834,
                   0.00833333333332221619637, 0.00138888889477855232082, 0.000198412698865638019455,
                   0.0000248014873660252760986, 0.00000275572423674493501268, 2.7632640675581067146e-7,
                   2.51100382968432287098e-8);
  }
  return {r, q, bits_of(shifted)};
}

// log(x) + correction / x for finite x > 0; `correction` is the rounding error of x.
template <class T>
HOST_DEVICE inline T log_corrected(T x, T correction) {
  using F = Format<T>;
  constexpr Bits<T> one = Bits<T>(F::bias) << F::mantissa, low = (Bits<T>(1) << F::mantissa) - 1;
  const Bits<T> root_half = bits_of(T(0.70710678118654752440));
  constexpr T min_normal = std::numeric_limits<T>::min();
  const T scaled = x * (x < min_normal ? T(4 * (low + 1)) : T(1));
  const T bias = x < min_normal ? T(F::bias + F::mantissa + 2) : T(F::bias);
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
  const detail::Exponential<T> e = detail::exponential(detail::clamp(x, F::exp_min, F::exp_max), 0);
  const detail::Bits<T> biased = e.bits - detail::bits_of(F::to_whole) + 2 * F::bias, half = biased >> 1;
  const T power = detail::from_bits<T>(half << F::mantissa);  // in two steps: 2^n itself may be subnormal or infinite
  return e.mantissa() * power * detail::from_bits<T>((biased - half) << F::mantissa);
}

// exp(x) - 1, 2 / 2 ulp
template <std::floating_point T>
HOST_DEVICE inline T expm1(T x) {
  using F = detail::Format<T>;
  const auto e = detail::exponential(detail::clamp(x, F::expm1_min, F::exp_max), F::bias - 1);
  const T half_power = e.power();  // 2^(n-1), because 2^n may overflow
  return 2 * detail::fused(e.mantissa_minus_one(), half_power, half_power - T(0.5));
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
  using F = detail::Format<T>;
  constexpr T unit = std::numeric_limits<T>::epsilon() / 2;  // extends both parts of the quotient: exp(-x) may overflow
  const auto e = detail::exponential(-detail::clamp(x, F::exp_min, F::sigmoid_max), F::bias - F::mantissa - 1);
  return unit / detail::fused(e.mantissa(), e.power(), unit);
}

// sigmoid(x) and 1 - sigmoid(x) at the cost of one, without cancellation; 3 / 3 ulp in both tails
template <class T>
struct SigmoidAndRest {
  T sigmoid, rest;
};
template <std::floating_point T>
HOST_DEVICE inline SigmoidAndRest<T> sigmoid_and_rest(T x) {
  using F = detail::Format<T>;
  constexpr T unit = std::numeric_limits<T>::epsilon() / 2;  // keeps the power of two normal
  T a = abs(x);
  a = a > -F::exp_min ? -F::exp_min : a;
  const detail::Exponential<T> e = detail::exponential(-a, F::bias + F::mantissa + 1);
  const T z = e.mantissa() * e.power() * unit, large = 1 / (1 + z), small = z * large;
  return {x < 0 ? small : large, x < 0 ? large : small};
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
  a = a > detail::Format<T>::erf_max ? detail::Format<T>::erf_max : a;
  const T s0 = T(1.1283791670955125586);  // near 2 / sqrt(pi); the remainder is the first coefficient of S
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
// exp(-(1/2 + drift) a^2) unit for 0 <= a <= normal_max; the unit keeps it a normal number. The
// result is undefined beyond, and any number for NaN.
//   a^2 = n l - r with n the integer nearest to a^2 / l,   l = 2 ln 2 cut to 16 / 42 bits
//   exp(-a^2 / 2) = 2^-n exp(r ln 2 / l) exp(drift a^2),   drift = ln 2 / l - 1 / 2
// n l is exact because l is short. r is rounded only once: rounding a^2 would cost a^2 / 2 ulp.
template <class T>
struct Gaussian;
template <>
struct Gaussian<float> {
  static constexpr int scale = 40;
  static constexpr double l = 1.38629150390625, drift = 1.03052411148e-6, unit = 46080 * 0x1p40;  // 6! 2^6 2^scale
};
template <>
struct Gaussian<double> {
  static constexpr int scale = 128;
  static constexpr double l = 1.38629436111978066037, drift = 3.96591313714e-14,
                          unit = 1961990553600 * 0x1p128;  // 12! 2^12
};
// The unit is 2^scale times the factor that makes the polynomial for exp(r ln 2 / l) monic.
template <class T>
HOST_DEVICE inline T gaussian(T a) {
  using F = Format<T>;
  using G = Gaussian<T>;
  constexpr T to_whole = F::to_whole + G::scale;
  const T shifted = fused(a * a, T(-1 / G::l), to_whole), n = shifted - to_whole;  // this n is negative
  const T r = fused(-a, a, n * T(-G::l));
  T m;  // degree 6 / 12
  if constexpr (sizeof(T) == 4) {
    m = monic(r, 46080.0, 23040.0483, 5760.023274, 959.9915703, 120.003076, 12.06053935);
  } else {
    m = monic(r, 1961990553600.0, 980995276800.07780944, 245248819200.03890757, 40874803200.009812875,
              5109350400.0015658048, 510935039.99873374424, 42577920.000476845223, 3041280.0105428252479,
              190079.99843271290289, 10559.963469335076901, 528.00206171529793045, 24.060533096395964909);
  }
  return from_bits<T>(bits_of(m) + (bits_of(shifted) << F::mantissa));
}
}  // namespace detail

// The density of N(0, 1): exp(-x^2 / 2) / sqrt(2 pi), 3 / 3 ulp
template <std::floating_point T>
HOST_DEVICE inline T normal_density(T x) {
  using G = detail::Gaussian<T>;
  constexpr T c = T(0.39894228040143267794 / G::unit);
  const T a = abs(x), y = detail::gaussian(a) * detail::fused(a * a, c * T(G::drift), c);
  return a > detail::Format<T>::normal_max ? T(0) : y;
}

// P(N(0, 1) < x) = (1 + erf(x / sqrt(2))) / 2, 6 / 9 ulp in the lower tail too
template <std::floating_point T>
HOST_DEVICE inline T normal_distribution(T x) {
  using G = detail::Gaussian<T>;
  const T a = abs(x);
  T p, q;                          // p / q = P(N > a) / gaussian(a), degrees 4 by 4 / 12 by 11, every term positive
  if constexpr (sizeof(T) == 4) {  // last digits by trial, for the least error of the rounded sums
    const T w = a * a;
    p = detail::fused(a, detail::polynomial(w, 1.95833554e-16, 7.86042853e-18),
                      detail::polynomial(w, 2.97826525e-16, 6.08266668e-17, 5.78496365e-22));
    q = detail::fused(a, detail::polynomial(w, 43.9232788, 7.6985631), detail::monic(w, 30.17906, 26.1209679));
  } else {
    p = detail::fused(a * a, T(G::drift), T(1)) *
        detail::polynomial(a, 1.3335551255142614314e-45, 2.2080347377642372096e-45, 1.812389197487134276e-45,
                           9.5292359023604899034e-46, 3.521068665490986498e-46, 9.5104795767819079285e-47,
                           1.8991415279723614161e-47, 2.7719790404385132639e-48, 2.8411330383690357003e-49,
                           1.8595840416460370516e-50, 5.975492543219467656e-52);
    q = detail::monic(a, 1780644.9224591105339, 4369053.04213968541, 5015691.1678604976951, 3563401.3118357745224,
                      1744911.4512103715961, 620092.85479367063518, 163734.75949021881238, 32255.639741803762643,
                      4670.0332414286585803, 476.4642429534373786, 31.120180105651445477);
  }
  const T y = detail::gaussian(a) * p / q, tail = a > detail::Format<T>::normal_max ? T(0) : y;
  return x > 0 ? 1 - tail : tail;
}

// 2 / 2 ulp for |x| <= 1e4; undefined, yet within [-1, 1], beyond 1e7 / 1e15
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
