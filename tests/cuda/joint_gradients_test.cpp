// Gradients that a GPU computes together: those of normalizations' parameters with the input's, those
// of packed projections, and the gradient buffers of leaves whose last kernels wait.
#include <doctest/doctest.h>

#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/ops/ops.h"
#include "nn/base/module.h"
#include "nn/layers/linear.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/optimizers/base/optimizer.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using namespace orrery::nn;
using orrery::testing::random_tensor;

namespace {

// A normalization that is used twice, before and after a linear layer.
struct Model final : Module {
  std::unique_ptr<Module> norm;
  Linear linear{256, 256, {}};
  explicit Model(const char* name) : norm(make_normalization(parse_spec(name), {.width = 256})) {}
  void visit(Visitor& v) override {
    v("norm", *norm);
    v("linear", linear);
  }
  Tensor forward(const Tensor& x, ForwardPass& pass) override {
    return norm->forward(linear.forward(norm->forward(x, pass), pass), pass);
  }
};

// Returns the gradients of x and of all parameters after `passes` backward passes.
std::vector<double> gradients(const char* name, Dtype dtype, Device device, int passes) {
  Model model(name);
  initialize(model, 1);
  convert(model, dtype);
  move(model, device);
  FlatParameters parameters(model);
  parameters.zero_gradients();
  std::vector<double> all;
  for (int pass = 0; pass < passes; ++pass) {
    ForwardPass forward;
    const Tensor x = random_tensor({30, 256}, 2).to(dtype).to(device).clone().set_requires_grad();
    const Tensor y = model.forward(x, forward);
    backward(y, random_tensor(y.shape(), 3).to(dtype).to(device));
    all = x.grad().to_vector();
  }
  const std::vector<double> more = parameters.gradients().to_vector();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = std::max(difference, std::abs(a[i] - b[i])), size = std::max(size, std::abs(b[i]));
  return difference / size;
}

TEST_CASE("joint gradients: a normalization that is used twice, in one and in two passes") {
  if (no_gpu()) return;
  for (const char* name : {"layer", "rms"})
    for (const int passes : {1, 2})
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        INFO(std::string(name), ", ", std::string(orrery::name(dtype)), ", ", passes, " passes");
        const std::vector<double> on_gpu = gradients(name, dtype, Device::cuda, passes);
        CHECK(largest_difference(on_gpu, gradients(name, dtype, Device::cpu, passes)) <
              (dtype == Dtype::f32 ? 1e-5 : 2e-2));
        CHECK(on_gpu == gradients(name, dtype, Device::cuda, passes));
      }
}

TEST_CASE("joint gradients: a projection that is split into several outputs") {
  if (no_gpu()) return;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{64, 128}, {64, 64, 64}, {5, 40, 3}}) {
    int64_t rows = 0;
    for (const int64_t size : sizes) rows += size;
    const auto run = [&](Device device) {
      const auto leaf = [&](const Shape& shape, uint32_t seed) {
        return random_tensor(shape, seed).to(Dtype::bf16).to(device).clone().set_requires_grad();
      };
      const Tensor x = leaf({20, 48}, 1), weight = leaf({rows, 48}, 2), bias = leaf({rows}, 3);
      const Tensor y = concatenate(linear_split(x, weight, bias, sizes), -1);
      backward(y, random_tensor(y.shape(), 4).to(Dtype::bf16).to(device));
      std::vector<double> all;
      for (const Tensor& t : {x, weight, bias}) {
        const std::vector<double> g = t.grad().to_vector();
        all.insert(all.end(), g.begin(), g.end());
      }
      return all;
    };
    CHECK(largest_difference(run(Device::cuda), run(Device::cpu)) < 1e-2);
  }
}

}  // namespace
