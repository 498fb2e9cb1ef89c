#include "engine/checks/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "engine/types/check.h"

namespace orrery {
namespace {

Tensor output_weights(const Shape& shape) {  // irregular, of size about 1, deterministic
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(1.7 * static_cast<double>(i) + 0.3) + 0.2;
  return Tensor::from(shape, values, Dtype::f64);
}

std::vector<Tensor> leaves(const GradientCase& test, Device device) {
  std::vector<Tensor> fresh;
  for (const GradientCase::Input& input : test.inputs) {
    fresh.push_back(input.value.to(device).clone());
    if (is_floating(input.value.dtype())) fresh.back().set_requires_grad();
  }
  return fresh;
}

struct Result {
  std::vector<double> output;
  std::vector<std::vector<double>> gradients;
};
Result differentiate(const GradientCase& test, const GradientCase::Function& f, Device device) {
  const std::vector<Tensor> x = leaves(test, device);
  const Tensor y = f(x);
  backward(y, output_weights(y.shape()).to(device));
  Result result{y.to_vector(), {}};
  for (const Tensor& t : x)
    result.gradients.push_back(t.grad()
                                   ? t.grad().to_vector()
                                   : std::vector<double>(static_cast<size_t>(is_floating(t.dtype()) ? t.numel() : 0)));
  return result;
}
double value_of(const GradientCase& test, const std::vector<Tensor>& x) {
  const NoGrad guard;
  const Tensor y = test.fast(x);
  return sum(y * output_weights(y.shape())).item();
}

double size_of(const std::vector<double>& v) {
  double size = 1;
  for (const double x : v) size = std::max(size, std::fabs(x));
  return size;
}
double difference(double a, double b, double size) {
  const double d = std::fabs(a - b) / size;
  return std::isnan(d) ? INFINITY : d;
}
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  const double size = size_of(a);
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, difference(a[i], b[i], size));
  return worst;
}

// Fourth order: error h^4 f'''''/30 and rounding eps/h are both below 1e-11 for h = 1e-3.
double finite_difference(const GradientCase& test, const std::vector<Tensor>& x, size_t input, int64_t element,
                         double h) {
  double* const target = x[input].mutable_data<double>() + element;
  const double middle = *target;
  const auto at = [&](double offset) {
    *target = middle + offset;
    const double value = value_of(test, x);
    *target = middle;
    return value;
  };
  return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
}

}  // namespace

double common_factor(std::span<const double> x, std::span<const double> y) {
  double products = 0, squares = 0, size = 0, error = 0;
  for (size_t i = 0; i < x.size(); ++i)
    products += x[i] * y[i], squares += y[i] * y[i], size = std::max(size, std::fabs(y[i]));
  const double factor = products / squares;
  for (size_t i = 0; i < x.size(); ++i) error = std::max(error, std::fabs(x[i] - factor * y[i]));
  return x.size() > 1 && error <= 1e-6 * size ? factor : NAN;
}

GradientReport check_gradients(const GradientCase& test, Device device) {
  const Result fast = differentiate(test, test.fast, device);
  GradientReport report;
  Result slow = fast;
  if (test.reference) {
    slow = differentiate(test, test.reference, Device::cpu);
    report.value_difference = largest_difference(fast.output, slow.output);
  }
  report.passed = report.value_difference <= reference_tolerance;
  std::vector<Tensor> x;
  for (const GradientCase::Input& input : test.inputs) x.push_back(input.value.clone());
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    if (!is_floating(test.inputs[i].value.dtype())) continue;
    const std::vector<double>& g = fast.gradients[i];
    GradientRow row{.input = test.inputs[i].name, .elements = static_cast<int64_t>(g.size())};
    row.reference_error = largest_difference(g, slow.gradients[i]);
    const double size = size_of(g);
    std::vector<double> checked, finite_differences;
    const size_t step = std::max<size_t>(1, g.size() / static_cast<size_t>(test.finite_differences));
    for (size_t e = 0; e < g.size(); e += step) {
      // A kink inside the stencil spoils a finite difference. A mismatch is therefore retried with
      // smaller steps, which exclude the kink; a wrong derivative fails at all steps.
      double q = 0, d = INFINITY;
      for (double h = 1e-3; h > 5e-7 && d > finite_difference_tolerance; h /= 10) {
        const double finer = finite_difference(test, x, i, static_cast<int64_t>(e), h),
                     miss = difference(g[e], finer, size);
        if (miss < d || h == 1e-3) q = finer, d = miss;
      }
      checked.push_back(g[e]), finite_differences.push_back(q);
      if (e > 0 && d <= row.finite_difference_error) continue;
      row.finite_difference_error = d, row.worst_element = static_cast<int64_t>(e), row.worst_explicit = g[e],
      row.worst_finite_difference = q;
    }
    row.factor = common_factor(checked, finite_differences);
    report.comparisons +=
        static_cast<int64_t>((g.size() + step - 1) / step) + (test.reference ? static_cast<int64_t>(g.size()) : 0);
    report.passed = report.passed && row.reference_error <= reference_tolerance &&
                    row.finite_difference_error <= finite_difference_tolerance;
    report.rows.push_back(row);
  }
  return report;
}

}  // namespace orrery
