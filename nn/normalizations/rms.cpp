// RMS normalization.  Zhang and Sennrich 2019, arXiv:1910.07467.
//   y = weight x r,   r = 1 / sqrt(mean x^2 + epsilon)       over C channels
// With g = dy and h = g weight:
//   dx = r h - x r^3 mean(h x)          from dr/dx = -r^3 x / C
//   dweight = sum over rows of g x r
// Kept: x, and r of each row (1 number a row, in the arithmetic type).
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
  In<T> x, weight;
  Out<T> y;
  A* rstd;
  A epsilon;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.hold(x.at(r * row.n));
    const In<T> w = weight;
    const Out<T> out = y.at(r * row.n);
    const A square = row.sum([&](auto i) { return in[i] * in[i]; }) / static_cast<A>(row.n);
    const A s = 1 / scalar::sqrt(square + epsilon);
    row.each([&](auto i) { out[i] = in[i] * s * w[i]; });
    row.once([&] { rstd[r] = s; });
  }
};

template <class T>
struct InputGradient {
  using A = Arithmetic<T>;
  In<T> x, weight, dy;
  Out<T> dx;
  const A* rstd;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = row.hold(x.at(r * row.n)), g = row.hold(dy.at(r * row.n));
    const In<T> w = weight;
    const Out<T> out = dx.at(r * row.n);
    const A s = rstd[r];
    const A slope = row.sum([&](auto i) { return g[i] * w[i] * in[i]; }) * s * s * s / static_cast<A>(row.n);
    row.each([&](auto i) { out[i] = s * g[i] * w[i] - in[i] * slope; });
  }
};

template <class T>
struct WeightTerm {
  using A = Arithmetic<T>;
  In<T> x, dy;
  const A* rstd;
  HOST_DEVICE A operator()(int64_t i, int64_t r) const { return dy[i] * x[i] * rstd[r]; }
};

struct RmsNorm {
  static constexpr const char* name = "rms_norm";
  double epsilon;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    const Tensor y = Tensor::empty_like(x);
    const Tensor rstd =
        Tensor::empty(Shape{x.shape().rows()}, x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32, x.device());
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      rows(x.device(), x.shape().rows(), static_cast<int>(x.size(-1)),
           Forward<T>{{x.data<T>()},
                      {weight.data<T>()},
                      {y.mutable_data<T>()},
                      rstd.mutable_data<A>(),
                      static_cast<A>(epsilon)});
    });
    saved.save(x, weight, rstd);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    Gradients<2> d;
    for (int i = 0; i < 2; ++i)
      if (saved.needs(i)) d[static_cast<size_t>(i)] = Tensor::empty_like(saved[i]);
    dispatch(x.dtype(), name, [&]<class T>() {
      using A = Arithmetic<T>;
      const int64_t count = x.shape().rows(), channels = x.size(-1);
      if (d[0])
        rows(x.device(), count, static_cast<int>(channels),
             InputGradient<T>{
                 {x.data<T>()}, {weight.data<T>()}, {dy.data<T>()}, {d[0].mutable_data<T>()}, rstd.data<A>()});
      if (d[1])
        reduce(x.device(), 1, count, channels, WeightTerm<T>{{x.data<T>()}, {dy.data<T>()}, rstd.data<A>()},
               d[1].mutable_data<T>());
    });
    return d;
  }
};

Tensor reference(const Tensor& x, const Tensor& weight, double epsilon) {
  return x / sqrt(mean(x * x, {-1}, true) + epsilon) * weight;
}

class RmsNormalization final : public Module {
 public:
  struct Settings {
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("epsilon", epsilon, "added to the mean square", above(0));
    }
  };
  static inline const Info info{.name = "rms",
                                .formula = "x / sqrt(mean(x^2) + epsilon) * weight",
                                .source = "Zhang and Sennrich 2019, arXiv:1910.07467",
                                .parameters = "weight 1",
                                .keeps = "x, 1/root mean square of each row"};

  RmsNormalization(const Spec& spec, const NormalizationOptions& options) : weight_(Shape{options.width}, constant(1)) {
    Settings settings;
    read_settings(spec, settings);
    epsilon_ = settings.epsilon;
  }
  Tensor forward(const Tensor& x, Pass&) override { return rms_norm(x, weight_.value, epsilon_); }
  void visit(Visitor& v) override { v("weight", weight_); }

 private:
  double epsilon_ = 0;
  Parameter weight_;
};
REGISTER_NORMALIZATION(RmsNormalization);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}, {"weight", random({7})}},
          [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); },
          [](const auto& in) { return reference(in[0], in[1], 1e-5); }};
}
REGISTER_GRADIENT_CASE("normalization", "rms", gradient_case);

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  check(x.shape().rank() >= 1 && weight.shape() == Shape{x.size(-1)}, "rms_norm: x ", x.shape(), " with weight ",
        weight.shape(), "; the weight needs the size of the last axis");
  check_same_kind("rms_norm", x, weight);
  return record(RmsNorm{epsilon}, x, weight);
}

}  // namespace orrery::nn
