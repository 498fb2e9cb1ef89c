// RMS normalization. Zhang and Sennrich 2019, arXiv:1910.07467.
//   y = weight x r,   r = 1 / sqrt(mean x^2 + epsilon)       over C channels
// With g = dy and h = g weight:
//   dx = r h - x r^3 mean(h x)          from dr/dx = -r^3 x / C
//   dweight = sum over rows of g x r
// On a GPU the same kernel adds to dx the pending gradient from other consumers of x (a residual),
// and sums dweight.
// At initialization, for rows of mean square v (the mean removes one of C directions of h):
//   E y^2 = mean weight^2 v / (v + epsilon),   E dx^2 = (1 - 1/C) mean weight^2 / (v + epsilon) E dy^2
// Saved for backward: x, and r of each row, in the arithmetic type.
#include <cmath>

#include "engine/autograd/parameter_gradient.h"
#include "engine/loops/tensor_loops.h"
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/diagnostics/predictions.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

struct Forward {
  double epsilon;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, In<T> w, Out<T> y, A& rstd) const {
    const auto in = row.preload(x), weight = row.preload(w);
    const A square = row.sum([](A x_i) { return x_i * x_i; }, in) / static_cast<A>(row.n);
    const A s = 1 / scalar::sqrt(square + A(epsilon));
    row.map(y, [&](A x_i, A w_i) { return x_i * s * w_i; }, in, weight);
    row.once([&] { rstd = s; });
  }
};

struct WeightTerm {
  template <class A>
  HOST_DEVICE A operator()(A x, A g, A rstd) const {
    return g * x * rstd;
  }
};
struct InputGradient {
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, In<T> w, In<T> dy, A s, In<T> pending, Out<T> dx) const {
    const auto in = row.preload(x), g = row.preload(dy), weight = row.preload(w), previous = row.preload(pending);
    const A product = row.sum([](A x_i, A g_i, A w_i) { return g_i * w_i * x_i; }, in, g, weight);
    const A coefficient = product * s * s * s / static_cast<A>(row.n);
    const auto gradient = [&](A x_i, A g_i, A w_i) { return s * g_i * w_i - x_i * coefficient; };
    const auto accumulated = [&](A x_i, A g_i, A w_i, A previous_i) { return previous_i + gradient(x_i, g_i, w_i); };
    if (pending)
      row.map(dx, accumulated, in, g, weight, previous);
    else
      row.map(dx, gradient, in, g, weight);
    row.add_to_columns([&](A x_i, A g_i) { return WeightTerm{}(x_i, g_i, s); }, in, g);
  }
};

struct RmsNorm {
  static constexpr const char* name = "rms_norm";
  double epsilon;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    const Tensor y = Tensor::empty_like(x), rstd = empty_computed(x, Shape{x.shape().rows()});
    each_row(name, Forward{epsilon}, row_of(x), broadcast(weight), out_row(y), out_per_row(rstd));
    saved.save(x, weight, rstd);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const Tensor pending = saved.needs(0) ? saved.take_pending_gradient(0) : Tensor();
    const Tensor dx = saved.needs(0) ? Tensor::empty_like(x) : Tensor();
    const auto with_operands = [&](const auto& loop) {
      return loop(row_of(x), broadcast(weight), row_of(dy), per_row(rstd), optional_row(pending), out_row(dx));
    };
    const auto rows_alone = [&](const auto&... x) { each_row(name, InputGradient{}, x...); };
    if (!saved.needs(1)) {
      with_operands(rows_alone);
      return {dx, {}};
    }
    const ParameterGradient dw(saved, 1, weight);
    const SumTensor sums[] = {dw.in_place()};
    const auto rows_and_sums = [&](const auto&... x) { return each_row_with_sums(name, InputGradient{}, sums, x...); };
    if (dx && with_operands(rows_and_sums)) return {dx, dw.done_in_place()};
    if (dx) with_operands(rows_alone);
    sum_rows(name, WeightTerm{}, out_sums(dw.sum), row_of(x), row_of(dy), per_row(rstd));
    return {dx, dw.done()};
  }
};

Tensor reference(const Tensor& x, const Tensor& weight, double epsilon) {
  return x / sqrt(mean(x * x, {-1}, true) + epsilon) * weight;
}

class RmsNormalization final : public AffineNormalization {
 public:
  struct Settings {
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("epsilon", epsilon, "added to the mean square", above(0, 100));
    }
  };
  static inline const Info info{.name = "rms",
                                .formula = "x / sqrt(mean(x^2) + epsilon) * weight",
                                .source = "Zhang and Sennrich 2019, arXiv:1910.07467",
                                .parameters = "weight 1",
                                .saves = "x, 1/root mean square of each row",
                                .alias = "rmsnorm"};

  RmsNormalization(const Spec& spec, const NormalizationOptions& options)
      : AffineNormalization({.width = options.width, .bias = false}), epsilon_(settings_from<Settings>(spec).epsilon) {}
  Tensor forward(const Tensor& x, ForwardPass&) override { return rms_norm(x, weight_.value, epsilon_); }
  std::vector<Prediction> predicted(const InputStats& stats) const {
    const double gain = mean(weight_.value * weight_.value).to(Dtype::f64).item() / (stats.mean_square + epsilon_);
    return {
        {ratio::normalized, gain, "1 / v", stats.mean_square},
        {ratio::gradient, gain * (1 - 1 / static_cast<double>(stats.channels)), "(1 - 1/C) / v", stats.mean_square}};
  }

 private:
  double epsilon_;
};
REGISTER_NORMALIZATION(RmsNormalization);
REGISTER_PREDICTION(RmsNormalization);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}, {"weight", random({7})}},
          [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); },
          [](const auto& in) { return reference(in[0], in[1], 1e-5); }};
}
REGISTER_GRADIENT_CASE("normalization", "rms", gradient_case);

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  check_affine(RmsNorm::name, x, weight);
  return record(RmsNorm{epsilon}, x, weight);
}

}  // namespace orrery::nn
