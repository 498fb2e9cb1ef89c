// Products, row operations and attention, as the comparison times them.
#include <cmath>

#include "engine/autograd.h"
#include "engine/matmul.h"
#include "engine/ops.h"
#include "engine/random.h"
#include "examples/orrery/bench.h"
#include "examples/orrery/table.h"
#include "nn/activation.h"
#include "nn/attend.h"
#include "nn/initialization.h"
#include "nn/normalization.h"

namespace orrery::program {

Tensor normal_tensor(const Shape& shape, uint64_t index) {
  const Tensor x = Tensor::empty(shape);
  nn::fill(x, nn::normal(1), RandomKey{0, 0}.derive("bench").derive(index));
  return x;
}

namespace {

// f(x) and the gradient of x, which is made anew each time.
template <class F>
Measured measure_both(const std::vector<Tensor>& x, const Tensor& dy, const F& f, double seconds) {
  const auto step = [&] {
    for (const Tensor& t : x) t.set_grad({});
    backward(f(), dy);
  };
  return measure(step, seconds);
}

using Operation = std::function<Tensor(const Tensor&)>;
std::vector<std::pair<std::string, Operation>> row_operations(int64_t channels) {
  const Tensor weight = Tensor::full(Shape{channels}, 1), bias = Tensor::zeros(Shape{channels}),
               alpha = Tensor::full(Shape{1}, 0.5), shift = Tensor::zeros(Shape{1});
  const auto activation = [](const char* name) {
    return [a = nn::Activation(parse_spec(name))](const Tensor& x) { return a(x); };
  };
  const nn::Activation tanh("tanh"), erf("erf");
  return {{"copy", [](const Tensor& x) { return x.clone(); }},
          {"gelu_erf", activation("gelu")},
          {"gelu_tanh", activation("gelu_tanh")},
          {"silu", activation("silu")},
          {"tanh", activation("tanh")},
          {"layer_norm", [=](const Tensor& x) { return nn::layer_norm(x, weight, bias); }},
          {"rms_norm", [=](const Tensor& x) { return nn::rms_norm(x, weight); }},
          {"dyt", [=](const Tensor& x) { return nn::dynamic_norm(x, tanh, alpha, {}, weight, bias); }},
          {"derf", [=](const Tensor& x) { return nn::dynamic_norm(x, erf, alpha, shift, weight, bias); }}};
}

}  // namespace

std::vector<BenchCase> gemm_cases() {
  std::vector<BenchCase> all;
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {2048, 2048, 2048}, {1024, 3072, 768}, {1024, 768, 3072}, {768, 512, 128}, {4096, 4096, 4096}}) {
    const Product product{.m = m, .n = n, .k = k};
    const double work = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / 1e9;
    all.push_back(
        {text("gemm/", m, "x", n, "x", k), work, "GFLOP/s", [product](double seconds) {
           const Tensor a = normal_tensor({product.m, product.k}, 0), b = normal_tensor({product.k, product.n}, 1);
           const auto multiply_once = [&] {
             const Tensor c = Tensor::empty({product.m, product.n});
             multiply<float>(Device::cpu, product, a.data<float>(), b.data<float>(), {c.mutable_data<float>()});
           };
           return BenchFigure{measure(multiply_once, seconds), {}};
         }});
  }
  return all;
}

std::vector<BenchCase> row_cases() {
  constexpr int64_t rows = 4096, channels = 1024;
  const double work = static_cast<double>(rows * channels * 8) / 1e9;  // read and written once
  std::vector<BenchCase> all;
  for (const auto& operation : row_operations(channels)) {
    const std::string& name = operation.first;
    const Operation& f = operation.second;
    const std::string stem = "rows/" + name + "/4096x1024/";
    all.push_back({stem + "forward", work, "GB/s", [f](double seconds) {
                     const NoGrad guard;
                     const Tensor x = normal_tensor({rows, channels}, 0);
                     return BenchFigure{measure([&] { f(x); }, seconds), {}};
                   }});
    if (name == "copy") continue;
    all.push_back({stem + "both", work * 2.5, "GB/s", [f](double seconds) {
                     const Tensor x = normal_tensor({rows, channels}, 0).set_requires_grad(),
                                  dy = normal_tensor({rows, channels}, 1);
                     return BenchFigure{measure_both(
                                            {x}, dy, [&] { return f(x); }, seconds),
                                        {}};
                   }});
  }
  return all;
}

std::vector<BenchCase> attention_cases() {
  constexpr int64_t batch = 1, heads = 4, size = 64;
  std::vector<BenchCase> all;
  for (const std::string name : {"softmax", "relu"})
    for (const int64_t length : {256, 1024, 4096})
      for (const bool causal : {false, true}) {
        const double scores = static_cast<double>(batch * heads * length * length * size) * (causal ? 0.5 : 1);
        const auto run = [=](double seconds) {
          const std::optional<nn::Activation> function =
              name == "softmax" ? std::nullopt : std::optional<nn::Activation>(name);
          const Shape shape{batch, length, heads, size};
          std::vector<Tensor> x;
          for (uint64_t i = 0; i < 3; ++i) x.push_back(normal_tensor(shape, i).set_requires_grad());
          std::vector<double> shares;  // 1 / L, L the keys that a query sees
          for (int64_t i = 0; i < length; ++i) shares.push_back(1. / static_cast<double>(causal ? i + 1 : length));
          const Tensor share = Tensor::from(Shape{1, length, 1, 1}, shares);
          const nn::ReadingOptions options{.scale = 1 / std::sqrt(static_cast<double>(size)), .causal = causal};
          const auto f = [&] {
            const Tensor read = nn::attend({.query = x[0], .key = x[1], .value = x[2]}, options, function).output;
            return function ? read * share : read;
          };
          const Measured both = measure_both(x, normal_tensor(shape, 3), f, seconds);
          const NoGrad guard;
          const Measured forward = measure(f, seconds);
          return BenchFigure{both,
                             {{"forward_ms", fixed(forward.best * 1e3, 3)},
                              {"shape", text("[", batch, ", ", heads, ", ", length, ", ", size, "]")}}};
        };
        all.push_back({text("attention/", name, "/L", length, causal ? "/causal" : "/full"), 4 * scores * 3.5 / 1e9,
                       "GFLOP/s", run});
      }
  return all;
}

}  // namespace orrery::program
