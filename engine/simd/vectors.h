// Vectors as wide as the registers that the including file is compiled for, and their functions.
//
// kernels_avx2.cpp and kernels_avx512.cpp, of products and of attention, compile this header with
// different flags. So it has anonymous namespaces and uses no function of the standard library. A
// function that both files share would be one symbol, and the linker could choose AVX-512 code for
// a machine that lacks it.
#pragma once

#include <cstdint>
#include <utility>

#include "engine/math/minimum.h"

namespace orrery::detail::simd {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
constexpr int kernel_rows = 6, kernel_vectors = 4;  // 24 sums of 32 registers
#else
constexpr int vector_bytes = 32;
constexpr int kernel_rows = 6, kernel_vectors = 2;  // 12 sums of 16 registers
#endif

// Constants and types of float and double. 2^n is made by adding n to the exponent field, which
// starts at bit `mantissa_bits`.
template <class A>
struct Format;
template <>
struct Format<float> {
  typedef float Vector __attribute__((vector_size(vector_bytes)));
  typedef float Memory __attribute__((vector_size(vector_bytes), aligned(4), may_alias));  // at any address
  typedef int32_t Mask __attribute__((vector_size(vector_bytes)));
  typedef uint32_t Bits __attribute__((vector_size(vector_bytes)));
  using Word = int32_t;
  static constexpr int mantissa_bits = 23, exponent_bias = 127, exp_terms = 7, log_terms = 5;
  static constexpr float exp_lowest = -87.f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
};
template <>
struct Format<double> {
  typedef double Vector __attribute__((vector_size(vector_bytes)));
  typedef double Memory __attribute__((vector_size(vector_bytes), aligned(8), may_alias));
  typedef int64_t Mask __attribute__((vector_size(vector_bytes)));
  typedef uint64_t Bits __attribute__((vector_size(vector_bytes)));
  using Word = int64_t;
  static constexpr int mantissa_bits = 52, exponent_bias = 1023, exp_terms = 13, log_terms = 10;
  static constexpr double exp_lowest = -708., ln2_high = 6.93147180369123816490e-01,
                          ln2_low = 1.90821492927058770002e-10;
};

template <class A>
using Vector = typename Format<A>::Vector;
template <class A>
using Mask = typename Format<A>::Mask;  // per lane all ones or all zeros
template <class A>
using Bits = typename Format<A>::Bits;  // unsigned: sums may wrap around
template <class A>
using Word = typename Format<A>::Word;  // an integer as wide as A
template <class A>
constexpr int lanes = vector_bytes / static_cast<int>(sizeof(A));

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// A constant as an argument; std::integral_constant would be shared between the files.
template <int value>
struct Constant {
  constexpr operator int() const { return value; }
};

// Calls f(0), ... f(n - 1) with constants: arrays stay in registers only if no index is variable.
template <int n, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) { (f(Constant<i>()), ...); }
  (std::make_integer_sequence<int, n>());
}

template <class A>
[[gnu::always_inline]] inline Vector<A> load(const A* p) {
  return *reinterpret_cast<const typename Format<A>::Memory*>(p);
}
template <class A>
[[gnu::always_inline]] inline void store(A* p, Vector<A> x) {
  *reinterpret_cast<typename Format<A>::Memory*>(p) = x;
}
template <class A>
[[gnu::always_inline]] inline Vector<A> splat(A x) {
  return x - Vector<A>{};  // a compiler folds x - 0 to x, but not 0 + x, because x may be -0
}
template <class A>
[[gnu::always_inline]] inline Vector<A> select(Mask<A> mask, Vector<A> yes, Vector<A> no) {
  return mask ? yes : no;
}
template <class A>
[[gnu::always_inline]] inline bool any(Mask<A> mask) {
  Word<A> found = 0;
  unrolled<lanes<A>>([&](auto i) __attribute__((always_inline)) { found |= mask[int{i}]; });
  return found != 0;
}
template <class A>
[[gnu::always_inline]] inline A sum(Vector<A> x) {  // by halves, so that few additions wait for one another
  const auto stage = [&]<int s, int... lane>(Constant<s>, std::integer_sequence<int, lane...>)
      __attribute__((always_inline)) {
    if constexpr (s < lanes<A>) x += __builtin_shufflevector(x, x, (lane ^ s)...);
  };
  constexpr std::make_integer_sequence<int, lanes<A>> all;
  stage(Constant<8>(), all), stage(Constant<4>(), all);
  stage(Constant<2>(), all), stage(Constant<1>(), all);
  return x[0];
}
template <class A>
[[gnu::always_inline]] inline Mask<A> lane_numbers() {
  Mask<A> numbers{};
  unrolled<lanes<A>>([&](auto i) __attribute__((always_inline)) { numbers[int{i}] = i; });
  return numbers;
}

// e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2, for x <= 0 up to rounding:
// `power` = 2^n, and `rest` = e^r - 1 by its Taylor series, without cancellation.
template <class A>
struct SplitPower {
  Vector<A> power, rest;
};
template <class A>
[[gnu::always_inline]] inline SplitPower<A> split_exponential(Vector<A> x) {
  using F = Format<A>;
  constexpr A shift = A(3) * A(Word<A>{1} << (F::mantissa_bits - 1));  // adding it rounds to an integer
  const Vector<A> shifted = x * A(1.4426950408889634) + shift, n = shifted - shift;
  const Vector<A> r = x - n * F::ln2_high - n * F::ln2_low;
  constexpr auto inverse_factorial = [](int n) {
    double product = 1;
    for (int i = 2; i <= n; ++i) product *= i;
    return A(1 / product);
  };
  Vector<A> p = splat<A>(inverse_factorial(F::exp_terms));
  unrolled<F::exp_terms - 1>([&](auto i) __attribute__((always_inline)) {
    constexpr A coefficient = inverse_factorial(F::exp_terms - 1 - i);
    p = p * r + coefficient;
  });
  const Bits<A> power = (reinterpret_cast<Bits<A>>(shifted) + F::exponent_bias) << F::mantissa_bits;
  return {reinterpret_cast<Vector<A>>(power), p * r};
}

// About 1 ulp. Exactly 0, never denormal, for x < exp_lowest and minus infinity; NaN for NaN.
template <class A>
[[gnu::always_inline]] inline Vector<A> exponential(Vector<A> x) {
  const SplitPower<A> e = split_exponential<A>(x);
  return select<A>(x < Format<A>::exp_lowest, Vector<A>{}, (e.rest + A(1)) * e.power);
}

// tanh x = -y / (2 + y) for x > 0, with y = e^(-2x) - 1 = 2^n (e^r - 1) + (2^n - 1): accurate for small x too.
template <class A>
[[gnu::always_inline]] inline Vector<A> hyperbolic_tangent(Vector<A> x) {
  const Vector<A> down = A(-2) * select<A>(x < A(0), -x, x);
  const SplitPower<A> e = split_exponential<A>(down);
  const Vector<A> y = select<A>(down < Format<A>::exp_lowest, splat(A(-1)), e.power * e.rest + (e.power - A(1)));
  const Vector<A> size = y / (A(2) + y);
  return select<A>(x < A(0), size, -size);
}

// ln x for positive normal x: n ln 2 + 2 artanh t with x = 2^n m, m in [0.7, 1.4), t = (m - 1) / (m + 1).
// Returns infinity and NaN unchanged.
template <class A>
[[gnu::always_inline]] inline Vector<A> logarithm(Vector<A> x) {
  using F = Format<A>;
  constexpr Word<A> unit = Word<A>{1} << F::mantissa_bits,
                    lowest = (F::exponent_bias - 1) * unit + unit / 5 * 2;  // 0.7
  const Bits<A> bits = reinterpret_cast<Bits<A>>(x);
  const Mask<A> power = reinterpret_cast<Mask<A>>(bits - lowest) >> F::mantissa_bits;
  const Vector<A> m = reinterpret_cast<Vector<A>>(bits - (reinterpret_cast<Bits<A>>(power) << F::mantissa_bits));
  const Vector<A> t = (m - A(1)) / (m + A(1)), square = t * t;
  Vector<A> p = splat<A>(A(1) / (2 * F::log_terms + 1));
  unrolled<F::log_terms>([&](auto i) __attribute__((always_inline)) {
    constexpr A coefficient = A(1) / (2 * (F::log_terms - 1 - i) + 1);
    p = p * square + coefficient;
  });
  const Vector<A> n = __builtin_convertvector(power, Vector<A>);
  const Vector<A> result = n * F::ln2_high + (n * F::ln2_low + (t + t) * p);
  return select<A>(x - x == A(0), result, x);
}

// Transposes x. Stage s exchanges the blocks of s lanes off the diagonal.
template <class A>
[[gnu::always_inline]] inline void transpose(Vector<A> (&x)[lanes<A>]) {
  constexpr int n = lanes<A>;
  const auto stage = [&]<int s, int... lane>(Constant<s>, std::integer_sequence<int, lane...>)
      __attribute__((always_inline)) {
    if constexpr (s < n)
      unrolled<n>([&](auto i) __attribute__((always_inline)) {
        if constexpr ((i & s) == 0) {
          const Vector<A> a = x[i], b = x[i + s];
          x[i] = __builtin_shufflevector(a, b, ((lane & s) ? lane - s + n : lane)...);
          x[i + s] = __builtin_shufflevector(a, b, ((lane & s) ? lane + n : lane + s)...);
        }
      });
  };
  constexpr std::make_integer_sequence<int, n> all;
  stage(Constant<1>(), all), stage(Constant<2>(), all);
  stage(Constant<4>(), all), stage(Constant<8>(), all);
}

}  // namespace
}  // namespace orrery::detail::simd
