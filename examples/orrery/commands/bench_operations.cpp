// Matrix products, row operations and attention of the comparison with PyTorch.
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "examples/orrery/commands/bench.h"
#include "examples/orrery/terminal/table.h"
#include "nn/attentions/base/fused.h"
#include "nn/base/initialization.h"
#include "nn/formulas/activation.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::program {

Tensor normal_tensor(const Shape& shape, uint64_t index, Device device, Dtype dtype) {
  const Tensor x = Tensor::empty(shape, Dtype::f32, Device::cpu);
  nn::fill(x, nn::normal(1), RandomKey{0, 0}.derive("bench").derive(index));
  return x.to(dtype).to(device);
}

namespace {

// Times f(x) and the gradient of x, which is computed from scratch each time.
template <class F>
Timing measure_both(const BenchRun& run, const std::vector<Tensor>& x, const Tensor& dy, const F& f) {
  const auto step = [&] {
    for (const Tensor& t : x) t.set_grad({});
    backward(f(), dy);
  };
  return measure_on(run, step);
}

using Operation = std::function<Tensor(const Tensor&)>;
struct Weights {
  Tensor weight, bias, alpha, shift;
};
struct RowOperation {
  std::string name;
  std::function<Operation(const BenchRun&)> make;  // allocates its weights, in its dtype
};
std::vector<RowOperation> row_operations(int64_t channels) {
  const auto activation = [](const char* name) {
    return [a = nn::Activation(parse_spec(name))](const BenchRun&) -> Operation {
      return [a](const Tensor& x) { return a(x); };
    };
  };
  const auto weights = [=](const auto& f) {
    return [=](const BenchRun& run) -> Operation {
      const auto of = [&](int64_t n, double value) {
        return Tensor::full(Shape{n}, value).to(run.dtype).to(run.device);
      };
      const Weights w{of(channels, 1), of(channels, 0), of(1, 0.5), of(1, 0)};
      return [=](const Tensor& x) { return f(x, w); };
    };
  };
  const nn::Activation tanh("tanh"), erf("erf");
  return {
      {"copy", [](const BenchRun&) -> Operation { return [](const Tensor& x) { return x.clone(); }; }},
      {"gelu_erf", activation("gelu")},
      {"gelu_tanh", activation("gelu_tanh")},
      {"silu", activation("silu")},
      {"tanh", activation("tanh")},
      {"layer_norm", weights([](const Tensor& x, const Weights& w) { return nn::layer_norm(x, w.weight, w.bias); })},
      {"rms_norm", weights([](const Tensor& x, const Weights& w) { return nn::rms_norm(x, w.weight); })},
      {"dyt", weights([=](const Tensor& x, const Weights& w) {
         return nn::dynamic_norm(x, tanh, w.alpha, {}, w.weight, w.bias);
       })},
      {"derf", weights([=](const Tensor& x, const Weights& w) {
         return nn::dynamic_norm(x, erf, w.alpha, w.shift, w.weight, w.bias);
       })}};
}

}  // namespace

std::vector<BenchCase> gemm_cases() {
  std::vector<BenchCase> all;
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {2048, 2048, 2048}, {1024, 3072, 768}, {1024, 768, 3072}, {768, 512, 128}, {4096, 4096, 4096}}) {
    const Shape of_a{m, k}, of_b{k, n};
    const double work = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / 1e9;
    all.push_back({text("gemm/", m, "x", n, "x", k), work, "GFLOP/s", true, [=](const BenchRun& run) {
                     const Tensor a = normal_tensor(of_a, 0, run.device, run.dtype),
                                  b = normal_tensor(of_b, 1, run.device, run.dtype);
                     const NoGrad guard;
                     return BenchResult{measure_on(run, [&] { matmul(a, b); }), {}};
                   }});
  }
  return all;
}

std::vector<BenchCase> row_cases() {
  constexpr int64_t rows = 4096, channels = 1024;
  // Bytes for f32, read and written once; bf16 moves half as many.
  const double work = static_cast<double>(rows * channels * 8) / 1e9;
  std::vector<BenchCase> all;
  for (const RowOperation& operation : row_operations(channels)) {
    const auto& make = operation.make;
    const std::string stem = "rows/" + operation.name + "/4096x1024/";
    all.push_back({stem + "forward", work, "GB/s", true, [make](const BenchRun& run) {
                     const NoGrad guard;
                     const Operation f = make(run);
                     const Tensor x = normal_tensor({rows, channels}, 0, run.device, run.dtype);
                     return BenchResult{measure_on(run, [&] { f(x); }), {}};
                   }});
    if (operation.name == "copy") continue;
    all.push_back({stem + "both", work * 2.5, "GB/s", true, [make](const BenchRun& run) {
                     const Operation f = make(run);
                     const Tensor x = normal_tensor({rows, channels}, 0, run.device, run.dtype).set_requires_grad(),
                                  dy = normal_tensor({rows, channels}, 1, run.device, run.dtype);
                     return BenchResult{measure_both(run, {x}, dy, [&] { return f(x); }), {}};
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
        const auto time = [=](const BenchRun& run) {
          const std::optional<nn::Activation> function =
              name == "softmax" ? std::nullopt : std::optional<nn::Activation>(name);
          const Shape shape{batch, length, heads, size};
          std::vector<Tensor> x;
          for (uint64_t i = 0; i < 3; ++i)
            x.push_back(normal_tensor(shape, i, run.device, run.dtype).set_requires_grad());
          std::vector<double> inverse_lengths;  // 1 / L, L = number of visible keys of a query
          for (int64_t i = 0; i < length; ++i)
            inverse_lengths.push_back(1. / static_cast<double>(causal ? i + 1 : length));
          const Tensor inverse_length =
              Tensor::from(Shape{1, length, 1, 1}, inverse_lengths).to(run.dtype).to(run.device);
          const AttentionOptions options{.mask = {.causal = causal}, .scale = 1 / std::sqrt(static_cast<double>(size))};
          const auto f = [&] {
            const Tensor output = nn::attention({.query = x[0], .key = x[1], .value = x[2]}, options, function).output;
            return function ? output * inverse_length : output;
          };
          const Timing both = measure_both(run, x, normal_tensor(shape, 3, run.device, run.dtype), f);
          const NoGrad guard;
          const Timing forward = measure_on(run, f);
          return BenchResult{both,
                             {{"forward_ms", fixed(forward.best * 1e3, 3)},
                              {"shape", text("[", batch, ", ", heads, ", ", length, ", ", size, "]")}}};
        };
        all.push_back({text("attention/", name, "/L", length, causal ? "/causal" : "/full"), 4 * scores * 3.5 / 1e9,
                       "GFLOP/s", true, time});
      }
  return all;
}

}  // namespace orrery::program
