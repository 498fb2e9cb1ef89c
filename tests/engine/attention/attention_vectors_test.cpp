// The vector functions of attention, in the instruction set that the tests are compiled for.
#include "engine/simd/vectors.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace orrery::detail::simd {
namespace {

template <class A>
double worst_ulp(double begin, double end, Vector<A> (*f)(Vector<A>), long double (*exact)(long double)) {
  double worst = 0;
  for (int64_t i = 0; i < 200000; i += lanes<A>) {
    A x[lanes<A>], y[lanes<A>];
    for (int64_t l = 0; l < lanes<A>; ++l)
      x[l] = static_cast<A>(begin + (end - begin) * static_cast<double>(i + l) / 200016);
    store<A>(y, f(load<A>(x)));
    for (int64_t l = 0; l < lanes<A>; ++l) {
      const long double right = exact(x[l]);
      const A size = right == 0 ? std::numeric_limits<A>::min() : static_cast<A>(right);  // zero has no exponent
      const double ulp = std::ldexp(1., std::ilogb(size) - std::numeric_limits<A>::digits + 1);
      worst = std::max(worst, static_cast<double>(std::abs(static_cast<long double>(y[l]) - right)) / ulp);
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("attention: exponential and logarithm") {
  CHECK(worst_ulp<float>(-87, 0, exponential<float>, std::exp) < 1.1);
  CHECK(worst_ulp<double>(-708, 0, exponential<double>, std::exp) < 1.1);
  CHECK(worst_ulp<float>(1e-3, 0.9, logarithm<float>, std::log) < 2.5);
  CHECK(worst_ulp<float>(1.2, 1e4, logarithm<float>, std::log) < 2.5);
  CHECK(worst_ulp<double>(1.2, 1e4, logarithm<double>, std::log) < 2.5);
  CHECK(exponential<float>(Vector<float>{} - INFINITY)[0] == 0);
  CHECK(exponential<float>(Vector<float>{} - 87.1f)[0] == 0);
  CHECK(exponential<float>(Vector<float>{})[0] == 1);
  CHECK(std::isnan(exponential<float>(Vector<float>{} + NAN)[0]));
  CHECK(std::isnan(logarithm<float>(Vector<float>{} + NAN)[0]));
}

TEST_CASE("attention: hyperbolic tangent") {
  CHECK(worst_ulp<float>(-9, 9, hyperbolic_tangent<float>, std::tanh) < 3);
  CHECK(worst_ulp<double>(-20, 20, hyperbolic_tangent<double>, std::tanh) < 3);
  CHECK(worst_ulp<double>(-1e-6, 1e-6, hyperbolic_tangent<double>, std::tanh) < 3);  // no cancellation
  for (const double x : {50., 400., 1e300, double{INFINITY}}) {
    CHECK(hyperbolic_tangent<double>(Vector<double>{} + x)[0] == 1);
    CHECK(hyperbolic_tangent<double>(Vector<double>{} - x)[0] == -1);
  }
  CHECK(hyperbolic_tangent<float>(Vector<float>{})[0] == 0);
  CHECK(std::isnan(hyperbolic_tangent<float>(Vector<float>{} + NAN)[0]));
}

}  // namespace orrery::detail::simd
