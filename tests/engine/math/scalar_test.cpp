#include "engine/math/scalar.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/math/dual.h"
#include "engine/math/positive_part.h"

using namespace orrery;

namespace {

using Exact = long double;  // 64 bits of mantissa: 11 more than f64

// Returns one unit in the last place of a T near x.
template <class T>
Exact ulp(Exact x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  return std::ldexp(Exact(1), std::max(exponent - std::numeric_limits<T>::digits, lowest));
}

// Returns points in [low, high]: evenly spaced, and at every scale down to 0 on both sides of zero.
template <class T>
std::vector<T> points(double low, double high) {
  constexpr int count = 20000;
  std::vector<T> all;
  for (int i = 0; i <= count; ++i) {
    all.push_back(static_cast<T>(low + (high - low) * (i + 0.37) / (count + 1)));
    const double scale = std::exp2(-i * (sizeof(T) == 4 ? 60.0 : 200.0) / count);
    all.push_back(static_cast<T>(high * scale));
    if (low < 0) all.push_back(static_cast<T>(low * scale));
  }
  return all;
}

template <class T>
struct Function {
  const char* name;
  T (*ours)(T);
  Exact (*exact)(Exact);
  double low, high;  // tested range
  double bound;      // in ulp, as scalar.h states it
};

constexpr Exact root_half = 0.70710678118654752440084436210485L, root_two_pi = 2.5066282746310005024157652848110L;

template <class T>
std::vector<Function<T>> functions() {
  const bool f = sizeof(T) == 4;
  const double overflow = f ? 88.7 : 709.7, underflow = f ? -103.9 : -745, largest = f ? 3e38 : 1e308,
               deep = f ? 14 : 38;
  const double smallest = f ? 1e-44 : 1e-322;
  return {
      {"exp", [](T x) { return scalar::exp(x); }, [](Exact x) { return std::exp(x); }, underflow, overflow, 1},
      {"exp", [](T x) { return scalar::exp(x); }, [](Exact x) { return std::exp(x); }, -5, 5, 1},
      {"expm1", [](T x) { return scalar::expm1(x); }, [](Exact x) { return std::expm1(x); }, underflow, overflow, 2},
      {"expm1", [](T x) { return scalar::expm1(x); }, [](Exact x) { return std::expm1(x); }, -2, 2, 2},
      {"log", [](T x) { return scalar::log(x); }, [](Exact x) { return std::log(x); }, smallest, largest, 1},
      {"log", [](T x) { return scalar::log(x); }, [](Exact x) { return std::log(x); }, 0.1, 4, 1},
      {"log1p", [](T x) { return scalar::log1p(x); }, [](Exact x) { return std::log1p(x); }, -0.5, largest, 1},
      {"log1p", [](T x) { return scalar::log1p(x); }, [](Exact x) { return std::log1p(x); }, -0.9999, 4, 1},
      {"tanh", [](T x) { return scalar::tanh(x); }, [](Exact x) { return std::tanh(x); }, -20, 20, 3},
      {"tanh", [](T x) { return scalar::tanh(x); }, [](Exact x) { return std::tanh(x); }, -1, 1, 3},
      {"sigmoid", [](T x) { return scalar::sigmoid(x); }, [](Exact x) { return 1 / (1 + std::exp(-x)); }, underflow,
       100, 3},
      {"sigmoid", [](T x) { return scalar::sigmoid(x); }, [](Exact x) { return 1 / (1 + std::exp(-x)); }, -5, 5, 3},
      {"sigmoid of a pair", [](T x) { return scalar::sigmoid_and_rest(x).sigmoid; },
       [](Exact x) { return 1 / (1 + std::exp(-x)); }, underflow, 100, 3},
      {"rest of a pair", [](T x) { return scalar::sigmoid_and_rest(x).rest; },
       [](Exact x) { return 1 / (1 + std::exp(x)); }, -100, -underflow, 3},
      {"rest of a pair", [](T x) { return scalar::sigmoid_and_rest(x).rest; },
       [](Exact x) { return 1 / (1 + std::exp(x)); }, -5, 5, 3},
      {"softplus", [](T x) { return scalar::softplus(x); },
       [](Exact x) { return std::max(x, Exact(0)) + std::log1p(std::exp(-std::fabs(x))); }, underflow, 100, 2},
      {"softplus", [](T x) { return scalar::softplus(x); },
       [](Exact x) { return std::max(x, Exact(0)) + std::log1p(std::exp(-std::fabs(x))); }, -5, 5, 2},
      {"erf", [](T x) { return scalar::erf(x); }, [](Exact x) { return std::erf(x); }, -7, 7, 2},
      {"erf", [](T x) { return scalar::erf(x); }, [](Exact x) { return std::erf(x); }, -1, 1, 2},
      {"normal_density", [](T x) { return scalar::normal_density(x); },
       [](Exact x) { return std::exp(-x * x / 2) / root_two_pi; }, -deep, deep, 3},
      {"normal_distribution", [](T x) { return scalar::normal_distribution(x); },
       [](Exact x) { return std::erfc(-x * root_half) / 2; }, f ? -13 : -37, deep, f ? 6 : 9},
      {"normal_distribution", [](T x) { return scalar::normal_distribution(x); },
       [](Exact x) { return std::erfc(-x * root_half) / 2; }, -6, 6, f ? 6 : 9},
      {"sin", [](T x) { return scalar::sin(x); }, [](Exact x) { return std::sin(x); }, -1e4, 1e4, 2},
      {"sin", [](T x) { return scalar::sin(x); }, [](Exact x) { return std::sin(x); }, -4, 4, 2},
      {"cos", [](T x) { return scalar::cos(x); }, [](Exact x) { return std::cos(x); }, -1e4, 1e4, 3},
      {"cos", [](T x) { return scalar::cos(x); }, [](Exact x) { return std::cos(x); }, -4, 4, 3},
      {"atan", [](T x) { return scalar::atan(x); }, [](Exact x) { return std::atan(x); }, -largest, largest, 2},
      {"atan", [](T x) { return scalar::atan(x); }, [](Exact x) { return std::atan(x); }, -10, 10, 2},
      {"sqrt", [](T x) { return scalar::sqrt(x); }, [](Exact x) { return std::sqrt(x); }, 0, largest, 0.501},
      {"abs", [](T x) { return scalar::abs(x); }, [](Exact x) { return std::fabs(x); }, -10, 10, 0},
      {"positive_part", [](T x) { return scalar::positive_part(x); }, [](Exact x) { return std::max(x, Exact(0)); },
       -10, 10, 0},
  };
}

template <class T>
void check_accuracy() {
  for (const Function<T>& function : functions<T>()) {
    double worst = 0, at = 0;
    for (const T x : points<T>(function.low, function.high)) {
      const Exact exact = function.exact(static_cast<Exact>(x));
      const Exact error = std::fabs(static_cast<Exact>(function.ours(x)) - exact) / ulp<T>(exact);
      if (!(error <= worst)) worst = static_cast<double>(error), at = static_cast<double>(x);
    }
    INFO(std::string(function.name), sizeof(T) == 4 ? ", f32" : ", f64", ": worst at ", at);
    CHECK(worst <= function.bound);
    if (function.bound > 0) CHECK(worst > 0.1);  // else the test compares nothing
  }
}

template <class T>
void check_ends() {
  constexpr T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for (const Function<T>& function : functions<T>()) {
    INFO(std::string(function.name));
    CHECK(std::isnan(function.ours(nan)));
    CHECK(std::isnan(function.ours(-nan)));
    for (int bit = 0; bit < std::numeric_limits<T>::digits - 2; ++bit) {  // NaN payloads that bit arithmetic could lose
      const auto one = scalar::detail::Bits<T>(1) << bit;
      CHECK(std::isnan(function.ours(std::bit_cast<T>(std::bit_cast<scalar::detail::Bits<T>>(nan) | one))));
    }
  }
  const T half_pi = static_cast<T>(1.57079632679489661923);
  CHECK(scalar::exp(inf) == inf);
  CHECK(scalar::exp(-inf) == 0);
  CHECK(scalar::exp(T(1e4)) == inf);
  CHECK(scalar::exp(T(-1e4)) == 0);
  CHECK(scalar::exp(T(0)) == 1);
  CHECK(scalar::expm1(inf) == inf);
  CHECK(scalar::expm1(-inf) == -1);
  CHECK(scalar::expm1(T(0)) == 0);
  CHECK(scalar::log(inf) == inf);
  CHECK(scalar::log(T(0)) == -inf);
  CHECK(scalar::log(T(1)) == 0);
  CHECK(std::isnan(scalar::log(T(-1))));
  CHECK(std::isnan(scalar::log(-inf)));
  CHECK(scalar::log1p(inf) == inf);
  CHECK(scalar::log1p(T(-1)) == -inf);
  CHECK(scalar::log1p(T(0)) == 0);
  CHECK(std::isnan(scalar::log1p(T(-2))));
  CHECK(scalar::tanh(inf) == 1);
  CHECK(scalar::tanh(-inf) == -1);
  CHECK(std::signbit(scalar::tanh(T(-0.0))));
  CHECK(scalar::sigmoid(inf) == 1);
  CHECK(scalar::sigmoid(-inf) == 0);
  for (const T x : {inf, T(1e4)}) {
    CHECK(scalar::sigmoid(x) == 1);
    CHECK(scalar::sigmoid(-x) == 0);
    CHECK(scalar::sigmoid_and_rest(x).sigmoid == 1);
    CHECK(scalar::sigmoid_and_rest(x).rest == 0);
    CHECK(scalar::sigmoid_and_rest(-x).sigmoid == 0);
    CHECK(scalar::sigmoid_and_rest(-x).rest == 1);
    CHECK(scalar::normal_distribution(x) == 1);
    CHECK(scalar::normal_distribution(-x) == 0);
    CHECK(scalar::normal_density(x) == 0);
    CHECK(scalar::normal_density(-x) == 0);
  }
  CHECK(scalar::softplus(inf) == inf);
  CHECK(scalar::softplus(-inf) == 0);
  CHECK(scalar::erf(inf) == 1);
  CHECK(scalar::erf(-inf) == -1);
  CHECK(scalar::erf(T(0)) == 0);
  CHECK(scalar::normal_density(inf) == 0);
  CHECK(scalar::normal_distribution(inf) == 1);
  CHECK(scalar::normal_distribution(-inf) == 0);
  CHECK(scalar::normal_distribution(T(0)) == doctest::Approx(0.5).epsilon(1e-7));
  CHECK(std::isnan(scalar::sin(inf)));
  CHECK(std::isnan(scalar::cos(-inf)));
  CHECK(std::fabs(scalar::sin(T(1e30))) <= 1);  // undefined, but bounded
  CHECK(scalar::atan(inf) == half_pi);
  CHECK(scalar::atan(-inf) == -half_pi);
  CHECK(std::isnan(scalar::sqrt(T(-1))));
  CHECK(scalar::abs(-inf) == inf);
  CHECK(scalar::positive_part(inf) == inf);
  CHECK(scalar::positive_part(-inf) == 0);
}

}  // namespace

TEST_CASE("scalar functions stay within their stated errors") {
  check_accuracy<float>();
  check_accuracy<double>();
}

TEST_CASE("scalar functions are correct at infinity, at zero and at NaN") {
  check_ends<float>();
  check_ends<double>();
}

TEST_CASE("the f32 functions are near the f64 ones at every float of one binade") {
  double worst = 0;
  for (float x = 0.5f; x < 1.0f; x = std::nextafter(x, 2.0f)) {
    worst = std::max(worst, std::fabs(scalar::exp(x) / scalar::exp(static_cast<double>(x)) - 1));
    worst = std::max(worst, std::fabs(scalar::log(x) / scalar::log(static_cast<double>(x)) - 1) / 2);
  }
  CHECK(worst < 1.2e-7);
  CHECK(worst > 3e-8);
}

TEST_CASE("dual numbers have the derivative of every scalar function") {
  const std::vector<std::pair<const char*, std::pair<Dual (*)(Dual), double (*)(double)>>> all = {
      {"exp", {[](Dual x) { return scalar::exp(x); }, [](double x) { return scalar::exp(x); }}},
      {"expm1", {[](Dual x) { return scalar::expm1(x); }, [](double x) { return scalar::expm1(x); }}},
      {"log", {[](Dual x) { return scalar::log(x * x); }, [](double x) { return scalar::log(x * x); }}},
      {"log1p", {[](Dual x) { return scalar::log1p(x * x); }, [](double x) { return scalar::log1p(x * x); }}},
      {"tanh", {[](Dual x) { return scalar::tanh(x); }, [](double x) { return scalar::tanh(x); }}},
      {"sigmoid", {[](Dual x) { return scalar::sigmoid(x); }, [](double x) { return scalar::sigmoid(x); }}},
      {"softplus", {[](Dual x) { return scalar::softplus(x); }, [](double x) { return scalar::softplus(x); }}},
      {"erf", {[](Dual x) { return scalar::erf(x); }, [](double x) { return scalar::erf(x); }}},
      {"normal_density",
       {[](Dual x) { return scalar::normal_density(x); }, [](double x) { return scalar::normal_density(x); }}},
      {"normal_distribution",
       {[](Dual x) { return scalar::normal_distribution(x); },
        [](double x) { return scalar::normal_distribution(x); }}},
      {"sin", {[](Dual x) { return scalar::sin(x); }, [](double x) { return scalar::sin(x); }}},
      {"cos", {[](Dual x) { return scalar::cos(x); }, [](double x) { return scalar::cos(x); }}},
      {"atan", {[](Dual x) { return scalar::atan(x); }, [](double x) { return scalar::atan(x); }}},
      {"sqrt", {[](Dual x) { return scalar::sqrt(x * x + 1); }, [](double x) { return scalar::sqrt(x * x + 1); }}},
      {"abs", {[](Dual x) { return scalar::abs(x); }, [](double x) { return scalar::abs(x); }}},
      {"positive_part",
       {[](Dual x) { return scalar::positive_part(x); }, [](double x) { return scalar::positive_part(x); }}},
      {"arithmetic",
       {[](Dual x) { return (2 * x - 1) / (x * x + 3) - x + -x * 0.5; },
        [](double x) { return (2 * x - 1) / (x * x + 3) - x + -x * 0.5; }}},
  };
  for (const auto& each : all) {
    const auto& [dual, plain] = each.second;
    INFO(std::string(each.first));
    for (double x = -3.03; x < 3; x += 0.17) {
      constexpr double h = 1e-3;
      const double derivative = (8 * (plain(x + h) - plain(x - h)) - (plain(x + 2 * h) - plain(x - 2 * h))) / (12 * h);
      const Dual y = dual(Dual(x, 2));  // the derivative is linear in the direction
      CHECK(y.value == doctest::Approx(plain(x)).epsilon(1e-15));
      if (std::fabs(x) > 0.1) CHECK(y.derivative / 2 == doctest::Approx(derivative).epsilon(1e-8));
    }
  }
  CHECK(scalar::abs(Dual(0, 1)).derivative == 0);
  CHECK((Dual(1, 5) < Dual(2, 0)));
  CHECK((Dual(1, 5) == Dual(1, 0)));
}
