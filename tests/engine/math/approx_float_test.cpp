// Functions of ApproxFloat compared with f64: at every bf16 value, their intended input, and at
// floats in between.
#include "engine/math/approx_float.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

using namespace orrery;

namespace {

struct Function {
  const char* name;
  ApproxFloat (*ours)(ApproxFloat);
  double (*exact)(double);
};
// One expression in both types; tests/engine/math/scalar_test.cpp checks the f64 functions.
#define FUNCTION(f)                                                                 \
  Function {                                                                        \
#f, [](ApproxFloat x) { return scalar::f; }, [](double x) { return scalar::f; } \
  }
const Function functions[] = {
    FUNCTION(exp(x)),
    FUNCTION(expm1(x)),
    FUNCTION(log(x)),
    FUNCTION(log1p(x)),
    FUNCTION(tanh(x)),
    FUNCTION(sigmoid(x)),
    FUNCTION(sigmoid_and_rest(x).sigmoid),
    FUNCTION(sigmoid_and_rest(x).rest),
    FUNCTION(softplus(x)),
    FUNCTION(erf(x)),
    FUNCTION(normal_density(x)),
    FUNCTION(normal_distribution(x)),
    FUNCTION(atan(x)),
    FUNCTION(sqrt(x)),
    FUNCTION(abs(x)),
    FUNCTION(sin(scalar::abs(x) < 1e4 ? x : 0 * x)),  // no bound above 1e4
    FUNCTION(cos(scalar::abs(x) < 1e4 ? x : 0 * x)),
};
#undef FUNCTION

// Returns the relative error of f at x: 0 below the normal range, or if both are NaN or infinite.
double error_of(const Function& f, float x) {
  constexpr double smallest = 0x1p-126, infinity = std::numeric_limits<double>::infinity();
  const auto ours = static_cast<double>(f.ours(x).value), exact = f.exact(static_cast<double>(x));
  const auto rounded = static_cast<double>(static_cast<float>(exact));  // infinite if it overflows f32
  if (std::isnan(exact) || std::isinf(rounded))
    return (std::isnan(exact) ? std::isnan(ours) : ours == rounded) ? 0 : infinity;
  const double error = std::fabs(ours - exact);
  return error <= smallest ? 0 : std::isnan(error) ? infinity : error / std::fabs(exact);
}

}  // namespace

TEST_CASE("approximate floats: every function has an error of at most 2^-15 at and between all bf16 numbers") {
  for (const Function& f : functions) {
    double worst = 0;
    float at = 0;
    for (uint32_t upper = 0; upper < 0x10000; ++upper)
      for (const uint32_t lower : {0u, 0x1234u, 0x2b67u, 0x5a3bu, 0x8000u, 0xa9c1u, 0xc70fu, 0xe4d9u}) {
        const auto x = std::bit_cast<float>(upper << 16 | lower);
        if (const double error = error_of(f, x); error > worst) worst = error, at = x;
      }
    INFO(std::string(f.name), ": worst at ", at);
    CHECK(worst <= 0x1p-15);
  }
}

TEST_CASE("approximate floats: arithmetic and comparisons equal those of float") {
  ApproxFloat x = 0.1f;
  x += 2;
  x *= 3.5;
  x -= ApproxFloat(0.25f);
  x /= 7;
  CHECK(x.value == ((0.1f + 2) * 3.5f - 0.25f) / 7);
  CHECK((-x + 1).value == -x.value + 1);
  CHECK((x < 2 && x > 0.5 && x <= x && x >= x && x == x));
  CHECK(!(ApproxFloat(std::numeric_limits<float>::quiet_NaN()) == std::numeric_limits<float>::quiet_NaN()));
}
