#include "nn/optimizers/base/optimizer.h"

#include <doctest/doctest.h>

#include "engine/ops/ops.h"
#include "nn/layers/linear.h"
#include "tests/support/golden.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::Golden;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;

namespace {

struct One final : Module {
  Parameter weight, bias;
  explicit One(const Tensor& start, bool with_bias = false) : weight(start.shape(), constant(0), start.dtype()) {
    weight.value.copy_from(start);
    if (with_bias) bias = Parameter(Shape{5}, constant(1), start.dtype()), fill(bias.value, constant(1), {});
  }
  Tensor forward(const Tensor& x, ForwardPass&) override { return linear(x, weight.value); }
  void visit(Visitor& v) override { v("weight", weight), v("bias", bias); }
};

}  // namespace

TEST_CASE("steps of optimizers equal PyTorch's") {
  const Golden golden("layers.safetensors");
  for (const auto& given : {std::tuple("adamw", "adamw(beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.1)", 0.01),
                            std::tuple("sgd", "sgd(momentum=0.9, weight_decay=0.05)", 0.1),
                            std::tuple("sgd_nesterov", "sgd(momentum=0.9, weight_decay=0.05, nesterov=yes)", 0.1)}) {
    const std::string name = std::get<0>(given), spec = std::get<1>(given);
    const double lr = std::get<2>(given);
    INFO(name);
    One model(golden(name + ".p"));
    FlatParameters flat(model);
    const auto optimizer = make_optimizer(parse_spec(spec), flat);
    for (int step = 0; step < 3; ++step) {
      flat.zero_gradients();
      backward(model.weight.value * golden(name + ".g")[step], Tensor::full({2, 3}, 1, Dtype::f64));
      CHECK(optimizer->step(lr));
      CHECK(largest_difference(model.weight.value, golden(name + ".steps")[step]) <= 1e-13);
    }
  }
}

TEST_CASE("flat buffers: handles stay valid, gradients are written into the flat buffer, decay by rank") {
  One model(random_tensor({3, 4}, 1), true);
  const Tensor handle = model.weight.value;
  const Tensor before = handle.clone();
  FlatParameters flat(model);
  CHECK(largest_difference(handle, before) == 0);
  CHECK(flat.groups().size() == 2);
  CHECK(flat.groups()[0].decay);
  CHECK(flat.values().numel() == 32);  // segments begin at multiples of 16
  sum(handle * 2.0).backward();
  CHECK(sum(flat.gradients()).item() == 24);
  flat.zero_gradients();
  sum(model.bias.value).backward();
  flat.write_pending_zeros();
  CHECK(sum(flat.gradients()).item() == 5);  // the weight's old gradient counts as zero
}

TEST_CASE("clipping, norms, bounds, and a non-finite gradient") {
  One model(random_tensor({2, 3}, 1));
  model.weight.min_value = -0.1, model.weight.max_value = 0.1;
  FlatParameters flat(model);
  const auto optimizer = make_optimizer(parse_spec("sgd(momentum=0)"), flat);
  const auto give = [&](double g) {
    flat.zero_gradients();
    sum(model.weight.value * g).backward();
  };
  give(2);
  double norm = 0;
  CHECK(optimizer->step(0, 1, &norm));
  CHECK(norm == doctest::Approx(std::sqrt(24.0)));
  for (const double v : model.weight.value.to_vector()) CHECK(std::fabs(v) <= 0.1);
  model.weight.min_value = -INFINITY, model.weight.max_value = INFINITY;
  FlatParameters free(model);
  const auto plain = make_optimizer(parse_spec("sgd(momentum=0)"), free);
  const Tensor before = model.weight.value.clone();
  free.zero_gradients();
  sum(model.weight.value * 2.0).backward();
  CHECK(plain->step(0.5, 1));
  CHECK(largest_difference(model.weight.value, before - Tensor::full({2, 3}, 0.5 * 2 / std::sqrt(24.0), Dtype::f64)) <=
        1e-6);
  const Tensor kept = model.weight.value.clone();
  free.zero_gradients();
  sum(model.weight.value * NAN).backward();
  CHECK(!plain->step(0.5, 1));
  CHECK(largest_difference(model.weight.value, kept) == 0);
  CHECK(plain->steps_done() == 1);
}
