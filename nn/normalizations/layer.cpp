// Layer normalization. Ba et al. 2016, arXiv:1607.06450.
//   xh = (x - mu) r,   mu = mean x,   r = 1 / sqrt(mean (x - mu)^2 + epsilon)        over C channels
//   y = weight xh + bias
// With g = dy and h = g weight:
//   dx = r (h - mean h - xh mean(h xh))      the two means come from dmu/dx and dr/dx
//   dweight = sum over rows of g xh,   dbias = sum over rows of g
// On a GPU the same kernel adds to dx the pending gradient from other consumers of x (a residual),
// and sums dweight and dbias.
// At initialization, for rows of mean 0 and variance v (the means remove two of C directions of h):
//   E y^2 = mean weight^2 v / (v + epsilon),   E dx^2 = (1 - 2/C) mean weight^2 / (v + epsilon) E dy^2
// Saved for backward: x, and mu and r of each row, in the arithmetic type. xh is recomputed.
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
  HOST_DEVICE void operator()(Row row, In<T> x, In<T> w, In<T> b, Out<T> y, A& mean, A& rstd) const {
    const auto in = row.preload(x), weight = row.preload(w), bias = row.preload(b);
    const A inverse_n = A(1) / static_cast<A>(row.n);
    const A mu = row.sum([](A x_i) { return x_i; }, in) * inverse_n;
    const A variance = row.sum([=](A x_i) { return (x_i - mu) * (x_i - mu); }, in) * inverse_n;
    const A s = 1 / scalar::sqrt(variance + A(epsilon));
    if (b)
      row.map(y, [&](A x_i, A w_i, A b_i) { return (x_i - mu) * s * w_i + b_i; }, in, weight, bias);
    else
      row.map(y, [&](A x_i, A w_i) { return (x_i - mu) * s * w_i; }, in, weight);
    row.once([&] { mean = mu, rstd = s; });
  }
};

struct ParameterTerms {  // g xh and g of one element
  template <class A>
  HOST_DEVICE Values<A, 2> operator()(A x, A g, A mean, A rstd) const {
    return {{g * (x - mean) * rstd, g}};
  }
};
struct InputGradient {
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, In<T> w, In<T> dy, A mu, A s, In<T> pending, Out<T> dx) const {
    const auto in = row.preload(x), g = row.preload(dy), weight = row.preload(w), previous = row.preload(pending);
    const A inverse_n = A(1) / static_cast<A>(row.n);
    const A mean_h = row.sum([](A g_i, A w_i) { return g_i * w_i; }, g, weight) * inverse_n;
    const A mean_hx =
        row.sum([=](A x_i, A g_i, A w_i) { return g_i * w_i * (x_i - mu); }, in, g, weight) * s * inverse_n;
    const auto gradient = [&](A x_i, A g_i, A w_i) { return s * (g_i * w_i - mean_h - (x_i - mu) * s * mean_hx); };
    const auto accumulated = [&](A x_i, A g_i, A w_i, A previous_i) { return previous_i + gradient(x_i, g_i, w_i); };
    if (pending)
      row.map(dx, accumulated, in, g, weight, previous);
    else
      row.map(dx, gradient, in, g, weight);
    row.add_to_columns([&](A x_i, A g_i) { return ParameterTerms{}(x_i, g_i, mu, s); }, in, g);
  }
};

struct LayerNorm {
  static constexpr const char* name = "layer_norm";
  double epsilon;

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    const Tensor y = Tensor::empty_like(x), mean = empty_computed(x, Shape{x.shape().rows()}),
                 rstd = Tensor::empty_like(mean);
    each_row(name, Forward{epsilon}, row_of(x), broadcast(weight), broadcast(bias), out_row(y), out_per_row(mean),
             out_per_row(rstd));
    saved.save(x, weight, mean, rstd);
    return y;
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3];
    const Tensor pending = saved.needs(0) ? saved.take_pending_gradient(0) : Tensor();
    const Tensor dx = saved.needs(0) ? Tensor::empty_like(x) : Tensor();
    const auto with_operands = [&](const auto& loop) {
      return loop(row_of(x), broadcast(weight), row_of(dy), per_row(mean), per_row(rstd), optional_row(pending),
                  out_row(dx));
    };
    const auto rows_alone = [&](const auto&... x) { each_row(name, InputGradient{}, x...); };
    if (!saved.needs(1) && !saved.needs(2)) {
      with_operands(rows_alone);
      return {dx, {}, {}};
    }
    const ParameterGradient dw(saved, 1, weight), db(saved, 2, weight);
    const SumTensor sums[] = {dw.in_place(), db.in_place()};
    const auto rows_and_sums = [&](const auto&... x) { return each_row_with_sums(name, InputGradient{}, sums, x...); };
    if (dx && with_operands(rows_and_sums)) return {dx, dw.done_in_place(), db.done_in_place()};
    if (dx) with_operands(rows_alone);
    sum_rows(name, ParameterTerms{}, out_sums(dw.sum, db.sum), row_of(x), row_of(dy), per_row(mean), per_row(rstd));
    return {dx, dw.done(), db.done()};
  }
};

Tensor reference(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Tensor centred = x - mean(x, {-1}, true);
  const Tensor y = centred / sqrt(mean(centred * centred, {-1}, true) + epsilon) * weight;
  return bias ? y + bias : y;
}

class LayerNormalization final : public AffineNormalization, public SubtractsMeans {
 public:
  struct Settings {
    double epsilon = 1e-5;
    template <class V>
    void visit(V& v) {
      v("epsilon", epsilon, "added to the variance", above(0, 100));
    }
  };
  static inline const Info info{.name = "layer",
                                .formula = "(x - mean) / sqrt(variance + epsilon) * weight + bias",
                                .source = "Ba et al. 2016, arXiv:1607.06450",
                                .parameters = "weight 1, bias 0",
                                .saves = "x, mean and 1/std of each row",
                                .alias = "layernorm"};

  LayerNormalization(const Spec& spec, const NormalizationOptions& options)
      : AffineNormalization(options), epsilon_(settings_from<Settings>(spec).epsilon) {}
  Tensor forward(const Tensor& x, ForwardPass&) override { return layer_norm(x, weight_.value, bias_.value, epsilon_); }
  Tensor without_means(const Tensor& x) const override { return x - mean(x, {-1}, true); }
  std::vector<Prediction> predicted(const InputStats& stats) const {
    const double gain = mean(weight_.value * weight_.value).to(Dtype::f64).item() / (stats.mean_square + epsilon_);
    return {
        {ratio::normalized, gain, "1 / v", stats.mean_square},
        {ratio::gradient, gain * (1 - 2 / static_cast<double>(stats.channels)), "(1 - 2/C) / v", stats.mean_square}};
  }

 private:
  double epsilon_;
};
REGISTER_NORMALIZATION(LayerNormalization);
REGISTER_PREDICTION(LayerNormalization);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}, {"weight", random({7})}, {"bias", random({7})}},
          [](const auto& in) { return layer_norm(in[0], in[1], in[2], 1e-5); },
          [](const auto& in) { return reference(in[0], in[1], in[2], 1e-5); }};
}
REGISTER_GRADIENT_CASE("normalization", "layer", gradient_case);

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  check_affine(LayerNorm::name, x, weight, bias);
  return record(LayerNorm{epsilon}, x, weight, bias);
}

}  // namespace orrery::nn
