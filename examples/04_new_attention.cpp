// A new attention, softmax_off_by_one.cpp: a formula, its derivative and its name in one file. Put
// it into nn/attentions/ to register it; this program checks and trains it.
#include <iostream>

#include "examples/softmax_off_by_one.cpp"
#include "nn/attentions/base/row_rule.h"
#include "nn/optimizers/base/optimizer.h"

using namespace orrery;

namespace {

// Compares gradients with autograd's and finite differences, as `orrery gradcheck` does.
void independent_checks(Device device) {
  for (const nn::RegisteredCase& one : nn::gradient_cases()) {
    if (one.name != "softmax_off_by_one") continue;
    const GradientReport report = check_gradients(nn::make_case(one), device);
    std::cout << (report.passed ? "passed  " : "FAILED  ") << one.title << ": " << report.comparisons
              << " comparisons\n";
    check(report.passed, "04: wrong gradient of ", one.title);
  }
}

// Trains a layer to copy the previous token, which only attention can do.
void train_layer(Device device) {
  constexpr int64_t width = 16, time = 12, batch = 8;
  const auto layer = nn::make_attention(parse_spec("softmax_off_by_one(scale=1)"),
                                        {.width = width, .heads = 2, .initial_weights = {.std = 0.3}});
  nn::initialize(*layer, 1);
  nn::move(*layer, device);
  nn::FlatParameters parameters(*layer);
  const auto optimizer = nn::make_optimizer(parse_spec("adamw(weight_decay=0)"), parameters);
  // Half of the channels encode the token's content, the other half its position.
  const Tensor content = Tensor::empty(Shape{batch, time, width / 2}, Dtype::f32, device),
               position = Tensor::empty(Shape{1, time, width / 2}, Dtype::f32, device);
  nn::fill(content, nn::normal(1), RandomKey{7, 0});
  nn::fill(position, nn::normal(1), RandomKey{7, 1});
  const Tensor x = concatenate({content, broadcast_to(position, content.shape())}, 2);
  const Tensor before = concatenate({slice(x, 1, 0, 1), slice(x, 1, 0, time - 1)}, 1);
  double first = 0, last = 0;
  for (int step = 0; step < 400; ++step) {
    parameters.zero_gradients();
    nn::ForwardPass pass;
    const Tensor residual = (*layer)(x, pass) - before, loss = mean(residual * residual);
    last = loss.item();
    if (step == 0) first = last;
    loss.backward();
    optimizer->step(1e-2);
  }
  std::cout << "softmax_off_by_one(scale=1): loss " << first << " before, " << last << " after 400 steps\n";
  check(last < 0.5 * first, "04: the loss must fall to half of ", first, ", but is ", last);
}

}  // namespace

int main(int argc, char** argv) {  // 04_new_attention [cpu or cuda]
  const Device device = parse_device(argc > 1 ? argv[1] : "cpu");
  independent_checks(device);
  train_layer(device);
  std::cout << "all checks passed; next: orrery try examples/softmax_off_by_one.cpp\n";
}
