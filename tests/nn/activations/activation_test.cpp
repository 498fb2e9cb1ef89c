// Numbers of every registered activation: derivatives, facts, limits and accuracy. A new activation is
// covered automatically.
#include "nn/formulas/activation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checks/gradient_check.h"
#include "nn/base/gradient_case.h"
#include "tests/nn/activations/curves.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing::curves;

namespace {

// ---- required f32 accuracy in units in the last place of max(|value|, floor), max(1, |derivative|)

struct Accuracy {
  double value = 4, derivative = 3;
  double floor = 0;
};
Accuracy accuracy_of(const Activation& f) {
  static const std::map<std::string_view, Accuracy> exceptions = {
      {"gelu", {.value = 7}},                                 // as the normal distribution
      {"gelu_tanh", {.value = 110}},                          // the argument of the exponential, up to 100, is rounded
      {"quick_gelu", {.value = 24}},                          // as above, up to 20
      {"silu", {.value = 24}},                                // as above, with a beta
      {"sine", {.value = 16, .derivative = 30, .floor = 1}},  // as above, with a frequency
      {"tanhshrink", {.floor = 1}},                           // cancels near zero (see its file)
  };
  const auto found = exceptions.find(f.info().name);
  return found == exceptions.end() ? Accuracy{} : found->second;
}
double unit(double x, int mantissa_bits) {  // one unit in the last place
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent - mantissa_bits, -125 - mantissa_bits));
}

template <class T>
std::vector<T> stored(const std::vector<double>& x) {
  std::vector<T> all;
  for (const double v : x) all.push_back(static_cast<T>(static_cast<Arithmetic<T>>(v)));
  return all;
}
template <class T>
double number(T x) {
  return static_cast<double>(static_cast<Arithmetic<T>>(x));
}

struct UnitError {
  double units = 0, x = 0;
  void add(double at, double error) {
    if (!(error <= units)) units = std::isnan(error) ? INFINITY : error, x = at;
  }
};

template <class T>
UnitError worst_value_error(const Activation& f, int mantissa_bits) {
  const std::vector<T> x = stored<T>(grid({}, 0));
  std::vector<T> y(x.size());
  f.role<TileRole<T>>().values(x.data(), y.data(), static_cast<int64_t>(x.size()));
  UnitError worst;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = f.value(number(x[i]));
    const double size = std::max(std::fabs(exact), accuracy_of(f).floor);
    worst.add(number(x[i]), std::fabs(number(y[i]) - exact) / unit(size, mantissa_bits));
  }
  return worst;
}
UnitError worst_derivative_error(const Activation& f) {
  const std::vector<float> x = stored<float>(grid({}, 0)), ones(x.size(), 1.0f);
  std::vector<float> dx(x.size());
  f.role<TileRole<float>>().backward(x.data(), ones.data(), nullptr, dx.data(), static_cast<int64_t>(x.size()));
  UnitError worst;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = f.derivative(x[i]);
    worst.add(x[i], std::fabs(dx[i] - exact) / unit(std::max(1.0, std::fabs(exact)), 24));
  }
  return worst;
}

void check_at_most(double limit, const char* what, const UnitError& worst) {
  INFO(what, " at x = ", worst.x, " is off by ", worst.units, " units in the last place; the limit is ", limit);
  CHECK(worst.units <= limit);
}

}  // namespace

TEST_CASE("every activation: the derivative agrees with finite differences of the value") {
  for (const Activation& f : every_activation()) {
    const Worst worst = derivative_error(curve_of(f));
    INFO(f.spec(), ", ", worst);
    CHECK(worst.error <= difference_bound);
    CHECK(error_at_kinks(curve_of(f)) <= kink_bound);
  }
}

TEST_CASE("every activation: the derivative agrees with dual numbers") {
  for (const Activation& f : every_activation()) {
    Worst worst;
    for (const double x : grid(f.info().kinks, 0)) worst.add(x, f.derivative(x), f.derivative_by_dual(x));
    for (const double x : {0.0, 1e-12, -1e-12, 50.0, -50.0})
      if (std::find(f.info().kinks.begin(), f.info().kinks.end(), x) == f.info().kinks.end())
        worst.add(x, f.derivative(x), f.derivative_by_dual(x));
    INFO(f.spec(), ", ", worst);
    CHECK(worst.error <= 1e-14);
  }
}

TEST_CASE("every activation: the derivative from the output equals that from the input") {
  int with = 0;
  for (const Activation& f : every_activation()) {
    if (!f.has_derivative_from_output()) continue;
    ++with;
    std::vector<double> points = grid({}, 0);
    points.insert(points.end(), f.info().kinks.begin(), f.info().kinks.end());
    Worst worst;
    for (const double x : points) worst.add(x, f.derivative_from_output(f.value(x)), f.derivative(x));
    INFO(f.spec(), ", ", worst);
    CHECK(worst.error <= 1e-13);
  }
  CHECK(with >= 10);
}

TEST_CASE("every activation: far out it is finite or at its limit, and NaN stays NaN") {
  for (const Activation& f : every_activation()) {
    INFO(f.spec());
    const bool defaults = f.spec() == f.info().name;
    const std::array<double, 2> ends = {-1e4, 1e4};
    for (size_t side = 0; side < 2; ++side) {
      const double x = ends[side], y = f.value(x), limit = f.info().limits[side];
      CAPTURE(x);
      CAPTURE(y);
      CHECK((std::isfinite(y) || y == limit));
      CHECK((std::isfinite(f.derivative(x)) || !std::isfinite(y)));
      if (defaults && std::isfinite(limit)) CHECK(std::fabs(y - limit) < 1e-3);
      if (defaults && std::isinf(limit)) CHECK((std::fabs(y) > 90 && std::signbit(y) == std::signbit(limit)));
      float narrow = static_cast<float>(x);
      f.role<TileRole<float>>().values(&narrow, &narrow, 1);
      CHECK((std::isfinite(narrow) || narrow == static_cast<float>(limit)));
      bf16 brief(static_cast<float>(x));
      f.role<TileRole<bf16>>().values(&brief, &brief, 1);
      CHECK((std::isfinite(static_cast<float>(brief)) || static_cast<float>(brief) == static_cast<float>(limit)));
    }
    CHECK(std::isnan(f.value(NAN)));
    float narrow = NAN;
    f.role<TileRole<float>>().values(&narrow, &narrow, 1);
    CHECK(std::isnan(narrow));
    bf16 brief(NAN);
    f.role<TileRole<bf16>>().values(&brief, &brief, 1);
    CHECK(std::isnan(static_cast<float>(brief)));
  }
}

TEST_CASE("every activation: f32 and bf16 have the accuracy of the table") {
  for (const Activation& f : every_activation()) {
    INFO(f.spec());
    check_at_most(accuracy_of(f).value, "the f32 value", worst_value_error<float>(f, 24));
    check_at_most(0.51, "the bf16 value", worst_value_error<bf16>(f, 8));
    check_at_most(accuracy_of(f).derivative, "the f32 derivative", worst_derivative_error(f));
  }
}

// ---- tests of the checks

TEST_CASE("the derivative check finds wrong derivatives") {
  const Activation gelu("gelu"), gelu_tanh("gelu_tanh"), silu("silu"), elu("elu(0.5)"), relu("relu");
  const auto value_of = [](const Activation& f) { return [f](double x) { return f.value(x); }; };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<Curve> wrong = {
      {value_of(gelu), [&](double x) { return gelu_tanh.derivative(x); }},  // derivative of the other GELU
      {value_of(gelu),
       [&](double x) {
         return 0.5 * (1 + std::erf(x * 0.707106)) + x * 0.398942 * std::exp(-x * x / 2);
       }},                                                                                    // six digits
      {value_of(silu), [&](double x) { return sigmoid(x) * (1 + x); }},                       // (1 - s) forgotten
      {value_of(elu), [](double x) { return x > 0 ? 1 : std::exp(x); }, {0}},                 // alpha forgotten
      {value_of(silu), [&](double x) { return -silu.derivative(x); }},                        // wrong sign
      {value_of(silu), [&](double x) { return x > 2 && x < 2.1 ? 0 : silu.derivative(x); }},  // wrong in one place only
      {value_of(silu), [&](double x) { return x > 11.9 ? NAN : silu.derivative(x); }},
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    CAPTURE(i);
    CHECK(derivative_error(wrong[i]).error > 100 * difference_bound);
  }
  CHECK(derivative_error(wrong[0]).error > 5e-4);
  const Curve above{value_of(relu), [](double x) { return x == 0 ? 1.1 : double(x > 0); }, {0}};
  CHECK(error_at_kinks(above) == doctest::Approx(0.1));
  CHECK(derivative_error(above).error <= difference_bound);  // only error_at_kinks detects this
}

TEST_CASE("every activation has a gradient case, and passes it") {
  std::vector<std::string> with_case;
  for (const RegisteredCase& registered : gradient_cases()) {
    if (registered.family != "activation") continue;
    with_case.push_back(registered.name);
    INFO(registered.name);
    const GradientReport report = check_gradients(make_case(registered));
    CHECK(report.passed);
    CHECK(report.comparisons > 36);
  }
  CHECK(with_case.size() == activation_names().size() + learned_activation_names().size());
}
