#include "examples/orrery/commands/pointwise_check.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/autograd/autograd.h"
#include "engine/checks/gradient_check.h"
#include "nn/formulas/activation.h"

namespace orrery::program {
namespace {

constexpr double h = 1e-3;  // step: error h^4 F'''''/30 and rounding eps F/h stay below 1e-9

std::vector<double> grid(const nn::ActivationInfo& info) {
  std::vector<double> points;
  for (int i = 0; i <= 384; ++i) {
    const double x = -12 + i / 16.0;
    bool near = false;
    for (const double kink : info.kinks) near = near || std::abs(x - kink) < 4 * h;
    if (!near) points.push_back(x);
  }
  return points;
}

double finite_difference(const std::function<double(double)>& f) {  // finite difference at 0, of fourth order
  return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
}

struct Quotients {  // of one row, and the explicit derivatives at the same points
  std::vector<double> exact, found;
};

void compare(PointwiseRow& row, Quotients& all, double x, double exact, double dual, double finite_difference) {
  all.exact.push_back(exact), all.found.push_back(finite_difference);
  const double size = std::max(1.0, std::abs(exact));
  const auto difference = [&](double other) {
    const double d = std::abs(exact - other) / size;
    return std::isnan(d) ? INFINITY : d;
  };
  row.dual_error = std::max(row.dual_error, difference(dual));
  const double d = difference(finite_difference);
  if (row.elements++ > 0 && d <= row.finite_difference_error) return;
  row.finite_difference_error = d, row.worst_x = x, row.worst_explicit = exact,
  row.worst_finite_difference = finite_difference;
}

Tensor leaf(const Shape& shape, const std::vector<double>& values) {
  return Tensor::from(shape, values, Dtype::f64).set_requires_grad();
}

}  // namespace

// Evaluates one row of x; each element has its own parameters, so that it tests each of them.
std::vector<PointwiseRow> check_pointwise(const std::string& activation) {
  const nn::Activation f(activation);
  const std::vector<double> points = grid(f.info()), initial = f.initial_parameters();
  const size_t columns = points.size(), count = initial.size();
  std::vector<double> parameters(count * columns);
  for (size_t j = 0; j < count; ++j)
    for (size_t i = 0; i < columns; ++i)
      parameters[j * columns + i] = initial[j] + 0.1 * std::sin(1.7 * static_cast<double>(i + j));
  const auto width = static_cast<int64_t>(columns);
  const Tensor x = leaf(Shape{1, width}, points);
  const Tensor p = count ? leaf(Shape{static_cast<int64_t>(count), width}, parameters) : Tensor();
  backward(f(x, p), Tensor::full(x.shape(), 1, Dtype::f64));
  const std::vector<double> derivatives = x.grad().to_vector();
  const std::vector<double> parameter_derivatives = p ? p.grad().to_vector() : parameters;

  std::vector<PointwiseRow> rows = {{.input = "x"}};
  for (const std::string_view name : f.info().parameters) rows.push_back({.input = std::string(name)});
  std::vector<Quotients> finite_differences(rows.size());
  for (size_t i = 0; i < columns; ++i) {
    std::vector<double> own(count);
    for (size_t j = 0; j < count; ++j) own[j] = parameters[j * columns + i];
    compare(rows[0], finite_differences[0], points[i], derivatives[i], f.derivative_by_dual(points[i], own),
            finite_difference([&](double d) { return f.value(points[i] + d, own); }));
    for (size_t j = 0; j < count; ++j) {
      const auto shifted = [&](double d) {
        std::vector<double> moved = own;
        moved[j] += d;
        return f.value(points[i], moved);
      };
      compare(rows[j + 1], finite_differences[j + 1], points[i], parameter_derivatives[j * columns + i],
              f.derivative_by_dual(points[i], own, static_cast<int>(j)), finite_difference(shifted));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].factor = common_factor(finite_differences[i].exact, finite_differences[i].found);
  return rows;
}

}  // namespace orrery::program
