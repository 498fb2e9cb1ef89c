// Tensors on the device: formulas of engine and nn through the CUDA loops, against the CPU.
#include <doctest/doctest.h>

#include "engine/matmul/matmul.h"
#include "engine/ops/ops.h"
#include "nn/feed_forwards/base/feed_forward.h"
#include "nn/formulas/activation.h"
#include "nn/layers/linear.h"
#include "nn/losses/base/loss.h"
#include "nn/normalizations/base/normalization.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/vision/convolution.h"
#include "nn/vision/pooling.h"
#include "tests/cuda/kernel_testing.h"
#include "tests/support/random_tensors.h"

using namespace orrery;
using orrery::testing::largest_difference;
using orrery::testing::random_tensor;
using orrery::testing::whole_numbers;

namespace {

using Inputs = std::vector<Tensor>;
using Function = std::function<Tensor(const Inputs&)>;

// Returns output and gradients of f on one device, copied to the CPU.
std::vector<Tensor> run(Device device, const Inputs& inputs, const Function& f) {
  Inputs x;
  for (const Tensor& t : inputs) {
    x.push_back(t.to(device).clone());
    if (is_floating(t.dtype())) x.back().set_requires_grad();
  }
  const Tensor y = f(x);
  backward(y, Tensor::full(y.shape(), 0.7, y.dtype(), device));
  std::vector<Tensor> results = {y.detach().to(Device::cpu)};
  for (const Tensor& t : x)
    if (t.grad()) results.push_back(t.grad().to(Device::cpu));
  return results;
}

// Compares both devices' numbers within `tolerance` times the size of the largest.
void compare(const char* name, const Inputs& inputs, const Function& f, double tolerance = 1e-12) {
  INFO(std::string(name));
  const std::vector<Tensor> cpu = run(Device::cpu, inputs, f), cuda = run(Device::cuda, inputs, f);
  REQUIRE(cpu.size() == cuda.size());
  for (size_t i = 0; i < cpu.size(); ++i) {
    INFO("result ", i);
    double size = 1;
    for (const double x : cpu[i].to_vector()) size = std::max(size, std::fabs(x));
    CHECK(largest_difference(cpu[i], cuda[i]) <= tolerance * size);
  }
}

}  // namespace

TEST_CASE("operations on the device give the CPU's numbers, forward and backward") {
  const Tensor x = random_tensor({5, 3, 7}, 1), y = random_tensor({3, 7}, 2);
  compare("arithmetic", {x, y}, [](const Inputs& t) { return (t[0] * t[1] + t[0]) / (t[1] * t[1] + 1.0) - t[1]; });
  compare("pointwise", {x}, [](const Inputs& t) { return tanh(exp(t[0] * 0.3)) + erf(t[0]); });
  compare("sums", {x}, [](const Inputs& t) { return sum(t[0], {0}) + mean(t[0], {0}) + max(t[0], 0); });
  compare("layout", {x}, [](const Inputs& t) {
    return concatenate({permute(t[0], {2, 0, 1}), permute(t[0], {2, 0, 1})}, 1);
  });
  const Tensor at = Tensor::from({4}, std::vector<int32_t>{2, 0, 2, 1});
  compare("rows by index", {y, at}, [](const Inputs& t) { return index_select(t[0], t[1]); });
}

TEST_CASE("layers on the device give the CPU's numbers") {
  if (no_gpu()) return;
  const Tensor x = random_tensor({9, 33}, 1), w = random_tensor({33}, 2), b = random_tensor({33}, 3);
  compare("layer normalization", {x, w, b}, [](const Inputs& t) { return nn::layer_norm(t[0], t[1], t[2]); });
  compare("rms normalization", {x, w}, [](const Inputs& t) { return nn::rms_norm(t[0], t[1]); });
  const Tensor targets = Tensor::from({9}, std::vector<int32_t>{3, 0, 32, -1, 5, 6, 7, 31, 2});
  compare("cross-entropy", {x, targets}, [](const Inputs& t) { return nn::cross_entropy(t[0], t[1]); });
  for (const std::string& name : nn::activation_names())
    compare(name.c_str(), {x}, [&](const Inputs& t) { return nn::Activation(name)(t[0]); });
  const Tensor image = random_tensor({2, 5, 7, 3}, 4);
  const nn::WindowSteps steps{.stride = {2, 1}, .padding = 1};
  compare("max pool", {image}, [&](const Inputs& t) { return nn::max_pool(t[0], {3, 2}, steps); });
  compare("average pool", {image}, [&](const Inputs& t) { return nn::average_pool(t[0], {3, 2}, steps); });
}

TEST_CASE("products, and layers made of them, give on the device the CPU's numbers, forward and backward") {
  if (no_gpu()) return;
  for (const auto& [dtype, tolerance] :
       {std::pair(Dtype::f32, 1e-5), std::pair(Dtype::f64, 1e-12), std::pair(Dtype::bf16, 1e-2)}) {
    const std::string type(name(dtype));
    CAPTURE(type);
    const auto random = [dtype = dtype](const Shape& shape, int seed) { return random_tensor(shape, seed, dtype); };
    const auto same = [tolerance = tolerance](const char* what, const Inputs& inputs, const Function& f) {
      compare(what, inputs, f, tolerance);
    };
    for (int form = 0; form < 4; ++form) {
      const Transposed t{.a = (form & 1) != 0, .b = (form & 2) != 0};
      const Shape a = t.a ? Shape{2, 70, 33} : Shape{2, 33, 70}, b = t.b ? Shape{2, 65, 70} : Shape{2, 70, 65};
      const Function product = [t](const Inputs& in) { return matmul(in[0], in[1], t); };
      same("a batch", {random(a, 1), random(b, 2)}, product);
      same("one b for all", {random(a, 1), random({b[1], b[2]}, 2)}, product);
      same("one a for all", {random({a[1], a[2]}, 1), random(b, 2)}, product);
    }
    const Tensor x = random({3, 7, 34}, 1), input = random({52, 34}, 2), input_bias = random({52}, 3);
    const Tensor output = random({34, 52}, 4), output_bias = random({34}, 5), half = random({34, 26}, 6);
    same("linear", {x, input, input_bias, random({3, 7, 52}, 7)},
         [](const Inputs& in) { return nn::linear(in[0], in[1], in[2], in[3]); });
    same("linear split", {x, input, input_bias}, [](const Inputs& in) {
      const std::vector<Tensor> y = nn::linear_split(in[0], in[1], in[2], {20, 31, 1});
      return concatenate({y[0] * 2.0, y[1], y[2] * 3.0}, -1);
    });
    for (const std::string name : {"gelu_tanh", "sigmoid"}) {  // sigmoid's derivative uses its value
      INFO(name);
      const nn::Activation f(name);
      same("dense", {x, input, input_bias, output, output_bias, random({3, 7, 34}, 8)},
           [&](const Inputs& in) { return nn::dense_feed_forward(in[0], f, in[1], in[2], in[3], in[4], in[5]); });
      same("gated", {x, input, input_bias, half, output_bias, random({3, 7, 34}, 8)},
           [&](const Inputs& in) { return nn::gated_feed_forward(in[0], f, in[1], in[2], in[3], in[4], in[5]); });
    }
    same("convolution", {random({2, 7, 6, 3}, 9), random({5, 3, 2, 3}, 10), random({5}, 11)}, [](const Inputs& in) {
      return nn::convolution(in[0], in[1], in[2], {.stride = {2, 1}, .padding = 1});
    });
    // A gradient with few tiles and long sums.
    same("long sums", {random({1500, 9}, 12), random({8, 9}, 13)},
         [](const Inputs& in) { return nn::linear(in[0], in[1], Tensor()); });
  }
}

TEST_CASE("integers: products on the device are bit-identical to the CPU's") {
  if (no_gpu()) return;
  const Tensor a = whole_numbers({150, 600}, 1, Dtype::f32), b = whole_numbers({600, 70}, 2, Dtype::f32);
  CHECK(largest_difference(matmul(a, b), matmul(a.to(Device::cuda), b.to(Device::cuda)).to(Device::cpu)) == 0);
  const Tensor c = a.to(Dtype::bf16), d = b.to(Dtype::bf16);
  CHECK(largest_difference(matmul(c, d), matmul(c.to(Device::cuda), d.to(Device::cuda)).to(Device::cpu)) == 0);
}

TEST_CASE("the precision of products affects only f32 on the device") {
  if (no_gpu()) return;
  const Tensor a = random_tensor({70, 300}, 1), b = random_tensor({300, 66}, 2),
               exact = matmul(a.to(Dtype::f32).to(Dtype::f64), b.to(Dtype::f32).to(Dtype::f64));
  const double size = largest_difference(exact, Tensor::zeros_like(exact));
  const auto product = [&](Device device, Dtype dtype) {
    return matmul(a.to(dtype).to(device), b.to(dtype).to(device)).to(Device::cpu);
  };
  CHECK(product_precision() == ProductPrecision::highest);
  const Tensor on_cpu = product(Device::cpu, Dtype::f32), wide = product(Device::cuda, Dtype::f64);
  const auto lost = [&](ProductPrecision precision, int terms = 3) {
    set_product_precision(precision, terms);
    CHECK(product_precision() == precision);
    CHECK(largest_difference(product(Device::cpu, Dtype::f32), on_cpu) == 0);
    CHECK(largest_difference(product(Device::cuda, Dtype::f64), wide) == 0);
    const double largest = largest_difference(product(Device::cuda, Dtype::f32), exact);
    set_product_precision(ProductPrecision::highest);
    return largest / size;
  };
  CHECK(lost(ProductPrecision::highest) < 1e-6);
  CHECK(lost(ProductPrecision::high) < 1e-6);
  const double of_two = lost(ProductPrecision::high, 2), of_one = lost(ProductPrecision::medium);
  CHECK(of_two < 1e-5);
  CHECK(of_two > 1e-7);
  CHECK(of_one < 1e-2);
  CHECK(of_one > 1e-4);
  const auto four_terms = [] { set_product_precision(ProductPrecision::high, 4); };
  expect_error(four_terms).names("precision").names("high").offers("2 or 3 bf16 terms").value(4);
}

TEST_CASE("steps of optimizers on the device equal the CPU's") {
  if (no_gpu()) return;
  struct One final : nn::Module {
    nn::Parameter weight;
    explicit One(const Tensor& start) : weight(start.shape(), nn::constant(0), start.dtype()) {
      weight.value = start.clone().set_requires_grad();
    }
    Tensor forward(const Tensor& x, nn::ForwardPass&) override { return x * weight.value; }
    void visit(nn::Visitor& v) override { v("weight", weight); }
  };
  for (const auto& [spec, dtype, tolerance] :
       {std::tuple("adamw(weight_decay=0.1)", Dtype::f64, 1e-12), std::tuple("sgd", Dtype::f64, 1e-12),
        std::tuple("lion(weight_decay=0.1)", Dtype::f64, 1e-12), std::tuple("adagrad", Dtype::f64, 1e-12),
        std::tuple("adamw(weight_decay=0.1)", Dtype::bf16, 1e-6), std::tuple("muon", Dtype::bf16, 1e-4)}) {
    const std::string optimizer = spec, type(name(dtype));
    INFO(optimizer, " ", type);
    std::vector<Tensor> results;
    for (const Device device : {Device::cpu, Device::cuda}) {
      One model(random_tensor({70, 70}, 1, dtype).to(device));
      nn::FlatParameters flat(model);
      const auto optimizer = nn::make_optimizer(parse_spec(spec), flat);
      for (int step = 0; step < 3; ++step) {
        flat.zero_gradients();
        sum(model.weight.value * random_tensor({70, 70}, 5 + step, dtype).to(device)).backward();
        CHECK(optimizer->step(0.01, 1));
      }
      results.push_back(flat.values().to(Device::cpu));
      CHECK(largest_difference(model.weight.value, flat.segment_view(flat.values(), flat.segments()[0]).to(dtype)) ==
            0);
    }
    CHECK(largest_difference(results[0], results[1]) <= tolerance);
  }
}

TEST_CASE("operands on two devices are an error that names both devices") {
  if (no_gpu()) return;
  const Tensor x = random_tensor({2}, 1);
  expect_error([&] { x + x.to(Device::cuda); }).names("add").value("cpu").value("cuda").offers(".to(Device::cpu)");
}
