// A new activation in one file. The struct below is all the code it needs. Put it into a file in
// nn/activations/ to register it in orrery; here it is registered in this example.
//
// SmeLU: a ReLU with a parabolic corner; f' is continuous. Shamir et al. 2022, arXiv:2202.06499.
//   f(x)  = 0 for x < -b,   (x + b)^2 / (4 b) for |x| <= b,   x for x > b
//   f'(x) = 0 for x < -b,   (x + b) / (2 b)   for |x| <= b,   1 for x > b
// The pieces agree at x = -b and x = b: values 0 and b, derivatives 0 and 1.
#include <cmath>
#include <cstdio>
#include <iostream>

#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/formulas/kernels.h"
#include "nn/optimizers/base/optimizer.h"

using namespace orrery;

namespace {

struct Smelu {
  static inline const nn::ActivationInfo info{
      .name = "smelu",
      .formula = "0 below -b, (x + b)^2 / (4 b) within, x above b",
      .source = "Shamir et al. 2022, arXiv:2202.06499",
      .constants = {{"b", 1, above(0, 1e6)}},  // name, default, range: the constants are the only members
      .kinks = {-1, 1},                        // jumps of the second derivative: finite differences avoid them
      .limits = {0, nn::ActivationInfo::infinity},
  };
  double b = 1;

  // T is float, double or a type like them (dual.h, approx_float.h); nvcc compiles this for GPUs.
  template <class T>
  HOST_DEVICE T value(T x) const {
    const T c = T(b), inner_value = (x + c) * (x + c) / (4 * c);
    return x < -c ? T(0) : x > c ? x : inner_value;  // comparisons with NaN are false: returns NaN
  }
  template <class T>
  HOST_DEVICE T derivative(T x) const {
    const T c = T(b), inner_value = (x + c) / (2 * c);
    return x < -c ? T(0) : x > c ? T(1) : inner_value;
  }
};
REGISTER_ACTIVATION(Smelu);

void by_name() {
  const nn::Activation plain("smelu"), narrow("smelu(0.25)");
  std::cout << "smelu(0.5) = " << plain.value(0.5) << ", with b = 0.25: " << narrow.value(0.5) << "\n";
  check(plain.value(0.5) == 0.5625 && narrow.value(0.5) == 0.5, "03: wrong values of smelu");
  try {
    nn::Activation("smelo");
  } catch (const Error& error) {  // the message names the closest match; the constant's range is checked below
    std::cout << "error: " << std::string(error.what()).substr(0, 50) << "...\n";
  }
  try {
    nn::Activation("smelu(b=-1)");
  } catch (const Error& error) {
    std::cout << "error: " << error.what() << "\n";
    return;
  }
  fail("03: a negative b must be an error");
}

// Checks the derivative as `orrery gradcheck` and the tests do for every registered activation.
void independent_checks() {
  const nn::Activation f("smelu");
  std::cout << "     x    f'(x)     dual numbers  finite diff\n";
  for (const double x : {-1.5, -0.7, 0.0, 0.4, 2.0}) {
    constexpr double h = 1e-4;
    const double derivative = f.derivative(x), dual = f.derivative_by_dual(x),
                 difference = (f.value(x + h) - f.value(x - h)) / (2 * h);
    std::printf("%6.2f %8.5f %16.5f %12.5f\n", x, derivative, dual, difference);
    check(std::abs(derivative - dual) < 1e-14 && std::abs(derivative - difference) < 1e-8,
          "03: wrong derivative of smelu at ", x);
  }
}

void on_tensors(Device device) {
  const Tensor x = Tensor::from(Shape{4}, {-2, -0.5, 0.5, 2}).to(device).set_requires_grad();
  const Tensor y = nn::Activation("smelu")(x);
  sum(y).backward();
  std::cout << "y = " << y.detach() << "\ndy/dx = " << x.grad() << "\n";
  check(x.grad().to_vector() == std::vector<double>{0, 0.25, 0.75, 1}, "03: wrong gradient of a tensor");
}

// Trains a feed-forward layer, with the activation fused in, to swap the two halves of its input.
void train_layer(Device device) {
  constexpr int64_t width = 8, rows = 64;
  const auto layer = nn::make_feed_forward(parse_spec("dense(smelu(0.5))"), {.width = width, .d_ff = 32});
  nn::initialize(*layer, 1);
  nn::move(*layer, device);
  nn::FlatParameters parameters(*layer);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(weight_decay=0)"), parameters);
  const Tensor x = Tensor::empty(Shape{rows, width}, Dtype::f32, device);
  nn::fill(x, nn::normal(1), RandomKey{7, 0});
  const std::vector<Tensor> halves = split(x, 2, -1);
  const Tensor target = concatenate({halves[1], halves[0]}, -1);
  double first = 0, last = 0;
  for (int step = 0; step < 300; ++step) {
    parameters.zero_gradients();
    nn::ForwardPass pass;
    const Tensor residual = (*layer)(x, pass) - target, loss = mean(residual * residual);
    last = loss.item();
    if (step == 0) first = last;
    loss.backward();
    optimizer->step(1e-2);
  }
  std::cout << "dense(smelu(0.5)): loss " << first << " before, " << last << " after 300 steps\n";
  check(last < 0.05 * first, "03: the loss must fall to 5 % of ", first, ", but is ", last);
}

}  // namespace

int main(int argc, char** argv) {  // 03_new_activation [cpu or cuda]
  const Device device = parse_device(argc > 1 ? argv[1] : "cpu");
  by_name();
  independent_checks();
  on_tensors(device);
  train_layer(device);
  std::cout << "all checks passed; next: orrery train --feed_forward=\"dense(gelu)\"\n";
}
