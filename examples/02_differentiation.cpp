// Automatic differentiation: recorded operations and the backward pass.
#include <cmath>
#include <iostream>

#include "engine/autograd/autograd.h"
#include "engine/autograd/recompute.h"
#include "engine/checks/gradient_check.h"
#include "engine/ops/ops.h"
#include "engine/types/check.h"

using namespace orrery;

namespace {

void first_gradient(Device device) {
  const Tensor x = Tensor::from(Shape{3}, {1, 2, 3}).to(device);
  x.set_requires_grad();  // a leaf: backward computes its gradient
  sum(x * x).backward();  // d/dx of the sum of squares
  std::cout << "gradient of sum(x x) = " << x.grad() << "\n";
  check(x.grad().to_vector() == std::vector<double>{2, 4, 6}, "02: the gradient of sum(x x) must be 2 x");

  // A second backward adds to the gradient; zero_grad() clears it.
  sum(x).backward();
  check(x.grad().to_vector() == std::vector<double>{3, 5, 7}, "02: a second backward must add to the gradient");
  x.zero_grad();
  backward(x * 2.0,
           Tensor::from(Shape{3}, {1, 0, -1}).to(device));  // a result with many elements: differentiates <y, dy>
  check(x.grad().to_vector() == std::vector<double>{2, 0, -2}, "02: wrong gradient for the given dy");
}

// A custom operation: each row divided by its length.
//   y = x / r,  r = |x|          per row
//   dx = (dy - y <y, dy>) / r    because dr = <x, dx> / r = <y, dx>
// Forward and backward are next to each other; the comment above derives one from the other.
struct UnitRows {
  static constexpr const char* name = "unit_rows";

  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor r = sqrt(sum(x * x, {-1}, true));  // not recorded: the operation is one node
    const Tensor y = x / r;
    saved.save(y, r);  // the only tensors held until backward
    return y;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &y = saved[0], &r = saved[1];
    return {(dy - y * sum(y * dy, {-1}, true)) / r};
  }
};
Tensor unit_rows(const Tensor& x) { return record(UnitRows{}, x); }

// Uses recorded operations: slower, but without a derivation by hand. An independent check.
Tensor unit_rows_reference(const Tensor& x) { return x / sqrt(sum(x * x, {-1}, true)); }

GradientCase unit_rows_case(GradientCase::Function fast) {
  const Tensor x = Tensor::from(Shape{2, 3}, {0.3, -1.2, 0.7, 2, 0.1, -0.4}, Dtype::f64);
  return {{{"x", x}}, std::move(fast), [](const auto& in) { return unit_rows_reference(in[0]); }};
}

void custom_operation(Device device) {
  const GradientReport report =
      check_gradients(unit_rows_case([](const auto& in) { return unit_rows(in[0]); }), device);
  std::cout << "unit_rows: error of the explicit derivative against the reference " << report.rows[0].reference_error
            << ", against finite differences " << report.rows[0].finite_difference_error << "\n";
  check(report.passed, "02: the derivative of unit_rows is wrong");

  // Shows that the check finds a wrong derivative: this one lacks the term of r.
  struct Wrong : UnitRows {
    Gradients<1> backward(const Saved& saved, const Tensor& dy) const { return {dy / saved[1]}; }
  };
  const GradientReport wrong =
      check_gradients(unit_rows_case([](const auto& in) { return record(Wrong{}, in[0]); }), device);
  std::cout << "without the term of r: element " << wrong.rows[0].worst_element << ": explicit "
            << wrong.rows[0].worst_explicit << ", finite difference " << wrong.rows[0].worst_finite_difference << "\n";
  check(!wrong.passed, "02: a wrong derivative passed the check");
}

void without_recording(Device device) {
  const Tensor x = Tensor::full(Shape{2}, 3, Dtype::f32, device);
  x.set_requires_grad();
  {
    const NoGrad guard;  // for evaluation: saves nothing
    check(!(x * x).requires_grad(), "02: NoGrad must not record operations");
  }
  // recompute saves only its input and reruns f in backward: less memory, more time.
  const auto f = [](const Tensor& t) { return exp(t) * tanh(t) + t; };
  sum(f(x)).backward();
  const std::vector<double> plain = x.grad().to_vector();
  x.zero_grad();
  sum(recompute(f, x)).backward();
  check(x.grad().to_vector() == plain, "02: recompute must not change gradients");
}

void misuse() {
  const Tensor x = Tensor::full(Shape{2}, 3);
  x.set_requires_grad();
  const Tensor y = exp(x), loss = sum(y * y);
  y.mutable_data<float>()[0] = 0;  // backward needs this value
  try {
    loss.backward();
  } catch (const Error& error) {
    std::cout << "error: " << error.what() << "\n";
    return;
  }
  fail("02: backward with a changed value must be an error");
}

// Gradient descent: finds w in y = X w from examples.
void gradient_descent(Device device) {
  const Tensor inputs = Tensor::from(Shape{4, 2}, {1, 0, 0, 1, 1, 1, 2, -1}, Dtype::f64).to(device);
  const Tensor truth = Tensor::from(Shape{2, 1}, {3, -2}, Dtype::f64).to(device), targets = matmul(inputs, truth);
  const Tensor w = Tensor::zeros(Shape{2, 1}, Dtype::f64, device);
  w.set_requires_grad();
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor residual = matmul(inputs, w) - targets, error = mean(residual * residual);
    loss = error.item();
    w.zero_grad();
    error.backward();
    add_in_place(w, w.grad() * -0.2);
  }
  std::cout << "after 200 steps: loss " << loss << ", w = " << w.detach() << "\n";
  check(loss < 1e-12 && std::abs(w.to_vector()[0] - 3) < 1e-5, "02: gradient descent must find w = 3");
}

}  // namespace

int main(int argc, char** argv) {  // 02_differentiation [cpu or cuda]
  const Device device = parse_device(argc > 1 ? argv[1] : "cpu");
  first_gradient(device);
  custom_operation(device);
  without_recording(device);
  misuse();
  gradient_descent(device);
  std::cout << "all checks passed; next: 03_new_activation.cpp\n";
}
