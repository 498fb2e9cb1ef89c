// Products, row operations and attention, as the comparison times them.
#include <cmath>

#include "engine/attend.h"
#include "engine/autograd.h"
#include "engine/matmul.h"
#include "engine/ops.h"
#include "engine/random.h"
#include "examples/orrery/bench.h"
#include "examples/orrery/table.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/initialization.h"
#include "nn/normalization.h"

namespace orrery::program {
namespace {

Tensor normal_tensor(const Shape& shape, uint64_t index) {
  const Tensor x = Tensor::empty(shape);
  nn::fill(x, nn::normal(1), RandomKey{0, 0}.derive("bench").derive(index));
  return x;
}

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
  const Tensor weight = Tensor::full(Shape{channels}, 1), bias = Tensor::zeros(Shape{channels});
  const auto activation = [](const char* name) {
    return [a = nn::Activation(parse_spec(name))](const Tensor& x) { return a(x); };
  };
  return {{"copy", [](const Tensor& x) { return x.clone(); }},
          {"gelu_erf", activation("gelu")},
          {"gelu_tanh", activation("gelu_tanh")},
          {"silu", activation("silu")},
          {"tanh", activation("tanh")},
          {"layer_norm", [=](const Tensor& x) { return nn::layer_norm(x, weight, bias); }},
          {"rms_norm", [=](const Tensor& x) { return nn::rms_norm(x, weight); }}};
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

// o_i = sum_j max(s_ij, 0) v_j in f32; the factor 1 / (number of visible keys) stays outside.
struct ReluAttend {
  static constexpr const char* name = "relu_attention";
  bool causal;

  static constexpr Weighting<float> weighting = {
      [](const void*, const float* s, float* w, int64_t n) {
        for (int64_t i = 0; i < n; ++i) w[i] = s[i] > 0 ? s[i] : 0.f;
      },
      [](const void*, const float* s, const float* g, float* w, float* ds, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const float score = s[i], gradient = g[i];
          w[i] = score > 0 ? score : 0.f, ds[i] = score > 0 ? gradient : 0.f;
        }
      },
      nullptr, true};

  static AttendSizes sizes(const Tensor& q, const Tensor& k, const Tensor& v) {
    return {.batch = q.size(0),
            .queries = q.size(1),
            .keys = k.size(1),
            .query_heads = q.size(2),
            .key_heads = k.size(2),
            .head_size = q.size(3),
            .value_size = v.size(3)};
  }
  AttendOptions options(const Tensor& q) const {
    return {.scale = 1 / std::sqrt(static_cast<double>(q.size(3))), .causal = causal};
  }
  static Tokens<const float> read(const Tensor& x) { return {x.data<float>(), x.size(2) * x.size(3)}; }
  static Tokens<float> write(const Tensor& x) { return {x.mutable_data<float>(), x.size(2) * x.size(3)}; }

  Tensor forward(Saved& saved, const Tensor& q, const Tensor& k, const Tensor& v) const {
    const Tensor o = Tensor::empty(q.shape().with(-1, v.size(-1)));
    attend_forward<float>(sizes(q, k, v), options(q), weighting, {read(q), read(k), read(v)}, write(o), nullptr);
    saved.keep(q, k, v);
    return o;
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    Gradients<3> d = {Tensor::empty_like(q), Tensor::empty_like(k), Tensor::empty_like(v)};
    attend_backward<float>(sizes(q, k, v), options(q), weighting, {read(q), read(k), read(v)}, {}, nullptr, read(dy),
                           {write(d[0]), write(d[1]), write(d[2])});
    return d;
  }
};

// 1 / (number of keys that query i sees), (length, 1, 1)
Tensor visible_share(int64_t length, bool causal) {
  std::vector<double> share;
  for (int64_t i = 0; i < length; ++i) share.push_back(1 / static_cast<double>(causal ? i + 1 : length));
  return Tensor::from(Shape{length, 1, 1}, share, Dtype::f32);
}

std::vector<BenchCase> attention_cases() {
  constexpr int64_t batch = 1, heads = 4, size = 64;
  std::vector<BenchCase> all;
  for (const bool relu : {false, true})
    for (const int64_t length : {256, 1024, 4096})
      for (const bool causal : {false, true}) {
        const double scores = static_cast<double>(batch * heads * length * length * size) * (causal ? 0.5 : 1);
        const auto run = [=](double seconds) {
          const Shape shape{batch, length, heads, size};
          std::vector<Tensor> x;
          for (uint64_t i = 0; i < 3; ++i) x.push_back(normal_tensor(shape, i).set_requires_grad());
          const nn::SoftmaxAttention settings{.scale = 1 / std::sqrt(static_cast<double>(size)), .causal = causal};
          const Tensor share = visible_share(length, causal);
          const auto f = [&] {
            return relu ? record(ReluAttend{causal}, x[0], x[1], x[2]) * share
                        : nn::softmax_attention(x[0], x[1], x[2], settings);
          };
          const Measured both = measure_both(x, normal_tensor(shape, 3), f, seconds);
          const NoGrad guard;
          const Measured forward = measure(f, seconds);
          return BenchFigure{both,
                             {{"forward_ms", fixed(forward.best * 1e3, 3)},
                              {"shape", text("[", batch, ", ", heads, ", ", length, ", ", size, "]")}}};
        };
        all.push_back({text("attention/", relu ? "relu" : "softmax", "/L", length, causal ? "/causal" : "/full"),
                       4 * scores * 3.5 / 1e9, "GFLOP/s", run});
      }
  return all;
}

}  // namespace orrery::program
