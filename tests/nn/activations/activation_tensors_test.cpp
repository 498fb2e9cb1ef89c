// Tensors through every registered activation, forward and backward, against the numbers of the
// activation.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/formulas/activation.h"
#include "tests/nn/activations/curves.h"
#include "tests/support/message.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using namespace orrery::testing::curves;
using orrery::testing::expect_error;
using orrery::testing::random_tensor;

TEST_CASE("every activation: tensors get the values and derivatives of numbers, in every dtype") {
  for (const Activation& f : every_activation())
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(f.spec(), ", ", name(dtype));
      const Tensor x = scale(random_tensor({3, 5, 7}, 1), 2).to(dtype), dy = random_tensor({3, 5, 7}, 2).to(dtype);
      const std::vector<double> at = x.to_vector(), g = dy.to_vector();
      std::vector<double> value, derivative;
      for (size_t i = 0; i < at.size(); ++i)
        value.push_back(f.value(at[i])), derivative.push_back(f.derivative(at[i]) * g[i]);
      x.set_requires_grad();
      const Tensor y = f(x);
      CHECK(y.shape() == x.shape());
      CHECK(y.dtype() == dtype);
      check_near(y, value);
      backward(y, dy);
      check_near(x.grad(), derivative);
    }
}

TEST_CASE("every activation: a gate has both gradients, in every dtype") {
  for (const Activation& f : every_activation())
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
      INFO(f.spec(), ", ", name(dtype));
      const Tensor x = scale(random_tensor({4, 9}, 3), 2).to(dtype), up = random_tensor({4, 9}, 4).to(dtype);
      const Tensor dy = random_tensor({4, 9}, 5).to(dtype);
      const std::vector<double> at = x.to_vector(), u = up.to_vector(), g = dy.to_vector();
      std::vector<double> value, dx, dup;
      for (size_t i = 0; i < at.size(); ++i) {
        value.push_back(f.value(at[i]) * u[i]);
        dx.push_back(f.derivative(at[i]) * u[i] * g[i]);
        dup.push_back(f.value(at[i]) * g[i]);
      }
      x.set_requires_grad();
      up.set_requires_grad();
      const Tensor y = f.gate(x, up);
      check_near(y, value);
      backward(y, dy);
      check_near(x.grad(), dx);
      check_near(up.grad(), dup);
    }
}

TEST_CASE("every activation: the functions for tiles agree with the operation, in place too") {
  for (const std::string& name : activation_names()) {
    INFO(name);
    const Activation f(name);
    constexpr int64_t n = 37;
    const Tensor x = scale(random_tensor({n}, 6), 3).to(Dtype::f32), g = random_tensor({n}, 7).to(Dtype::f32);
    const Tensor y = Tensor::empty({n}, Dtype::f32, Device::cpu), dx = Tensor::empty({n}, Dtype::f32, Device::cpu),
                 only_dx = Tensor::empty({n}, Dtype::f32, Device::cpu);
    const TileRole<float>& tile = f.role<TileRole<float>>();
    const float *const from = x.data<float>(), *const output_gradient = g.data<float>();
    tile.values(from, y.mutable_data<float>(), n);
    CHECK(y.to_vector() == f(x).to_vector());
    tile.backward(from, output_gradient, y.mutable_data<float>(), dx.mutable_data<float>(), n);
    tile.backward(from, output_gradient, nullptr, only_dx.mutable_data<float>(), n);
    check_near(y, f(x).to_vector());
    check_near(only_dx, dx.to_vector());
    const Tensor in_place_dx = g.clone();
    tile.backward(from, in_place_dx.data<float>(), nullptr, in_place_dx.mutable_data<float>(), n);
    CHECK(in_place_dx.to_vector() == only_dx.to_vector());
    const Tensor own = x.clone();
    tile.values(own.data<float>(), own.mutable_data<float>(), n);
    CHECK(own.to_vector() == f(x).to_vector());
  }
}

TEST_CASE("activations save the output if it gives the derivative, else the input") {
  const auto change_input_before_backward = [](const char* spec) {
    const Tensor x = random_tensor({5});
    x.set_requires_grad();
    const Tensor z = scale(x, 1), y = sum(Activation(spec)(z));
    z.copy_from(Tensor::zeros({5}, Dtype::f64));
    y.backward();
    return x.grad();
  };
  CHECK(change_input_before_backward("tanh").defined());
  const auto changed = [&] { change_input_before_backward("silu"); };
  expect_error(changed).names("backward").names("activation").value("(5)").offers("clone()");
}

TEST_CASE("long tensors, which are split into chunks, have correct values and gradients") {
  const Activation f("silu");
  const Tensor x = random_tensor({3, 20001}, 8);
  x.set_requires_grad();
  const Tensor y = f(x);
  const std::vector<double> at = x.to_vector();
  std::vector<double> value, derivative;
  for (const double v : at) value.push_back(f.value(v)), derivative.push_back(f.derivative(v));
  check_near(y, value);
  sum(y).backward();
  check_near(x.grad(), derivative);
  CHECK(f(Tensor::empty({0, 4}, Dtype::f32, Device::cpu)).numel() == 0);
}
