// Activations as curves: values and derivatives of numbers, and tensors near expected values. The
// checks take plain functions, so that wrong functions can be tested, too.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"
#include "nn/formulas/activation.h"

namespace orrery::testing::curves {

using namespace nn;

struct Curve {
  std::function<double(double)> value, derivative;
  std::vector<double> kinks = {};
};
struct Worst {
  double error = 0, x = 0, actual = 0, reference = 0;
  void add(double at, double a, double b) {
    const double e = std::fabs(a - b) / std::max(1.0, std::fabs(b));
    if (!(e <= error)) *this = {std::isnan(e) ? INFINITY : e, at, a, b};
  }
};
inline std::ostream& operator<<(std::ostream& out, const Worst& w) {
  return out << "worst at x = " << w.x << ": " << w.actual << " instead of " << w.reference;
}

inline constexpr double difference_step = 1e-3, end_of_grid = 12;
inline std::vector<double> grid(const std::vector<double>& kinks, double distance) {
  std::vector<double> all;
  for (double x = -end_of_grid; x <= end_of_grid; x += 0.0371)
    if (std::all_of(kinks.begin(), kinks.end(), [&](double kink) { return std::fabs(x - kink) > distance; }))
      all.push_back(x);
  return all;
}
inline double finite_difference(const std::function<double(double)>& f, double x) {  // fourth-order finite difference
  constexpr double h = difference_step;
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

inline Worst derivative_error(const Curve& curve) {
  Worst worst;
  for (const double x : grid(curve.kinks, 3 * difference_step))
    worst.add(x, curve.derivative(x), finite_difference(curve.value, x));
  return worst;
}
inline constexpr double difference_bound = 1e-9;

// Returns the distance of the derivative from the one-sided finite differences, at the worst kink.
inline double error_at_kinks(const Curve& curve) {
  double worst = 0;
  for (const double kink : curve.kinks) {
    constexpr double h = 1e-6;
    const double left = (curve.value(kink) - curve.value(kink - h)) / h;
    const double right = (curve.value(kink + h) - curve.value(kink)) / h;
    const double derivative = curve.derivative(kink);
    worst = std::max({worst, std::min(left, right) - derivative, derivative - std::max(left, right)});
  }
  return worst;
}
inline constexpr double kink_bound = 1e-5;  // the second derivative times h

inline Curve curve_of(const Activation& f) {
  return {[f](double x) { return f.value(x); }, [f](double x) { return f.derivative(x); }, f.info().kinks};
}

// Returns every activation with its defaults, and with each of its constants changed.
inline std::vector<Activation> every_activation() {
  std::vector<Activation> all;
  for (const std::string& name : activation_names()) {
    all.emplace_back(name);
    for (const ActivationConstant& constant : all.back().info().constants)
      all.emplace_back(name + "(" + std::string(constant.name) + "=1.7)");
  }
  return all;
}

// Returns every activation with learned parameters, by name and by preset.
inline std::vector<std::string> every_learned_activation() {
  std::vector<std::string> all = learned_activation_names();
  for (const std::string& name : learned_activation_names())
    for (const ActivationPreset& preset : Activation(name).info().presets) all.emplace_back(preset.name);
  return all;
}

inline double tolerance(Dtype dtype) { return dtype == Dtype::f64 ? 1e-13 : dtype == Dtype::f32 ? 2e-6 : 1.6e-2; }

inline void check_near(const Tensor& ours, const std::vector<double>& expected) {
  const std::vector<double> all = ours.to_vector();
  REQUIRE(all.size() == expected.size());
  Worst worst;
  for (size_t i = 0; i < all.size(); ++i) worst.add(static_cast<double>(i), all[i], expected[i]);
  CAPTURE(worst);
  CHECK(worst.error <= tolerance(ours.dtype()));
}

}  // namespace orrery::testing::curves
