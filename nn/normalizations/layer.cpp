// Layer normalization.  Ba et al. 2016, arXiv:1607.06450.
//   xh = (x - mu) r,   mu = mean x,   r = 1 / sqrt(mean (x - mu)^2 + epsilon),   y = weight xh + bias       over C
//   channels
// With g = dy and h = g weight:
//   dx = r (h - mean h - xh mean(h xh))      the two means come from dmu/dx and dr/dx
//   dweight = sum over rows of g xh,   dbias = sum over rows of g
// Kept: x, and mu and r of each row (2 numbers a row, in the arithmetic type): xh is recomputed.
#include <cmath>

#include "engine/autograd/autograd.h"
#include "engine/base/dispatch.h"
#include "engine/base/scalar.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

template <class T>
struct Forward {
  using A = Arithmetic<T>;
  In<T> x, weight, bias;
  Out<T> y;
  A *mean, *rstd;
  A epsilon;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.hold(x.at(r * row.n));
    const In<T> w = weight, b = bias;
    const Out<T> out = y.at(r * row.n);
    const A share = A(1) / static_cast<A>(row.n);
    const A mu = row.sum([&](auto i) { return in[i]; }) * share;
    const A variance = row.sum([&](auto i) { return (in[i] - mu) * (in[i] - mu); }) * share;
    const A s = 1 / scalar::sqrt(variance + epsilon);
    if (b)
      row.each([&](auto i) { out[i] = (in[i] - mu) * s * w[i] + b[i]; });
    else
      row.each([&](auto i) { out[i] = (in[i] - mu) * s * w[i]; });
    row.once([&] { mean[r] = mu, rstd[r] = s; });
  }
};

template <class T>
struct InputGradient {
  using A = Arithmetic<T>;
  In<T> x, weight, dy;
  Out<T> dx;
  const A *mean, *rstd;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.hold(x.at(r * row.n)), g = row.hold(dy.at(r * row.n));
    const In<T> w = weight;
    const Out<T> out = dx.at(r * row.n);
    const A mu = mean[r], s = rstd[r], share = A(1) / static_cast<A>(row.n);
    const A mean_h = row.sum([&](auto i) { return g[i] * w[i]; }) * share;
    const A mean_hx = row.sum([&](auto i) { return g[i] * w[i] * (in[i] - mu); }) * s * share;
    row.each([&](auto i) { out[i] = s * (g[i] * w[i] - mean_h - (in[i] - mu) * s * mean_hx); });
  }
};

template <class T>
struct ParameterTerms {  // g xh and g of one element
  using A = Arithmetic<T>;
  In<T> x, dy;
  const A *mean, *rstd;
  HOST_DEVICE Values<A, 2> operator()(int64_t i, int64_t r) const {
    const A g = dy[i];
    return {{g * (x[i] - mean[r]) * rstd[r], g}};
  }
};

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  double epsilon;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor y = Tensor::empty_like(x);
    const Dtype statistics = x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    const Tensor mean = Tensor::empty(Shape{x.shape().rows()}, statistics, x.device()), rstd = Tensor::empty_like(mean);
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      rows(x.device(), x.shape().rows(), static_cast<int>(x.size(-1)),
           Forward<T>{{x.data<T>()},
                      {weight.data<T>()},
                      {bias ? bias.data<T>() : nullptr},
                      {y.mutable_data<T>()},
                      mean.mutable_data<A>(),
                      rstd.mutable_data<A>(),
                      static_cast<A>(epsilon)});
    });
    saved.save(x, weight, mean, rstd);
    return y;
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3];
    const int64_t count = x.shape().rows(), channels = x.size(-1);
    Gradients<3> d;
    if (saved.needs(0)) d[0] = Tensor::empty_like(x);
    if (saved.needs(1) || saved.needs(2)) d[1] = Tensor::empty_like(weight), d[2] = Tensor::empty_like(weight);
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      const A *const m = mean.data<A>(), *const s = rstd.data<A>();
      if (d[0])
        rows(x.device(), count, static_cast<int>(channels),
             InputGradient<T>{{x.data<T>()}, {weight.data<T>()}, {dy.data<T>()}, {d[0].mutable_data<T>()}, m, s});
      if (d[1])
        reduce(x.device(), 1, count, channels, ParameterTerms<T>{{x.data<T>()}, {dy.data<T>()}, m, s},
               Outputs<T, 2>{{d[1].mutable_data<T>(), d[2].mutable_data<T>()}});
    });
    return d;
  }
};

Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Tensor centred = x - mean(x, {-1}, true);
  const Tensor y = centred / sqrt(mean(centred * centred, {-1}, true) + epsilon) * weight;
  return bias ? y + bias : y;
}

class LayerNormalization final : public Module {
 public:
  struct Settings {
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("epsilon", epsilon, "added to the variance", above(0));
    }
  };
  static inline const Info info{.name = "layer",
                                .formula = "(x - mean) / sqrt(variance + epsilon) * weight + bias",
                                .source = "Ba et al. 2016, arXiv:1607.06450",
                                .parameters = "weight 1, bias 0",
                                .keeps = "x, mean and 1/std of each row"};

  LayerNormalization(const Spec& spec, const NormalizationOptions& options)
      : weight_(Shape{options.width}, constant(1)) {
    Settings settings;
    read_settings(spec, settings);
    epsilon_ = settings.epsilon;
    if (options.bias) bias_ = Parameter(Shape{options.width}, constant(0));
  }
  Tensor forward(const Tensor& x, Pass&) override { return layer_norm(x, weight_.value, bias_.value, epsilon_); }
  void visit(Visitor& v) override {
    v("weight", weight_);
    v("bias", bias_);
  }

 private:
  double epsilon_ = 0;
  Parameter weight_, bias_;
};
REGISTER_NORMALIZATION(LayerNormalization);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}, {"weight", random({7})}, {"bias", random({7})}},
          [](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); },
          [](const auto& in) { return reference(in[0], in[1], in[2], 1e-5); }};
}
REGISTER_GRADIENT_CASE("normalization", "layer", gradient_case);

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  check(x.shape().rank() >= 1 && weight.shape() == Shape{x.size(-1)} && (!bias || bias.shape() == weight.shape()),
        "layer_norm: x ", x.shape(), " with weight ", weight.shape(),
        "; the weight and bias need the size of the last axis");
  check_same_kind("layer_norm", x, weight);
  return record(LayerNorm{epsilon}, x, weight, bias);
}

}  // namespace orrery::nn
