// ScaleNorm: divides every token by its length, with one learned length for all. Nguyen and Salazar
// 2019, arXiv:1910.05895.
//   y = g x r,   r = 1 / sqrt(sum x^2 + epsilon)   over C channels; g: one number, sqrt(C) or set
// With u = x r, h = dy and dr = -r^3 <x, dx>; saved for backward: x and r of each row.
//   dx = g r (h - u <u, h>),   dg = sum over rows of <u, h>
#include "engine/autograd/parameter_gradient.h"
#include "engine/loops/tensor_loops.h"
#include "engine/math/scalar.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {
namespace {

struct Forward {
  double epsilon;
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, In<T> g, Out<T> y, A& r) const {
    const auto in = row.preload(x);
    const A s = 1 / scalar::sqrt(row.sum([](A x_i) { return x_i * x_i; }, in) + A(epsilon)), length = g[0];
    row.map(y, [&](A x_i) { return length * x_i * s; }, in);
    row.once([&] { r = s; });
  }
};
struct Backward {
  template <class Row, class T, class A>
  HOST_DEVICE void operator()(Row row, In<T> x, In<T> g, In<T> dy, A r, Out<T> dx, A& dg) const {
    const auto in = row.preload(x), h = row.preload(dy);
    const A along = row.sum([](A x_i, A h_i) { return x_i * h_i; }, in, h) * r, factor = g[0] * r;
    row.map(dx, [&](A x_i, A h_i) { return factor * (h_i - x_i * r * along); }, in, h);
    row.once([&] { dg = along; });
  }
};

struct ScaleNorm {
  static constexpr const char* name = "scale_norm";
  double epsilon;
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& g) const {
    const Tensor y = Tensor::empty_like(x), r = empty_computed(x, x.shape().without(-1));
    each_row(name, Forward{epsilon}, row_of(x), broadcast(g), out_row(y), out_per_row(r));
    saved.save(x, g, r);
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &g = saved[1], &r = saved[2], dx = Tensor::empty_like(x), along = Tensor::empty_like(r);
    each_row(name, Backward{}, row_of(x), broadcast(g), row_of(dy), per_row(r), out_row(dx), out_per_row(along));
    const ParameterGradient dg(saved, 1, g);
    dg.sum.copy_from(sum(along).reshape(g.shape()));
    return {dx, dg.done()};
  }
};

struct ScaleNormalization final : Module {
  struct Settings {
    double g = 0, epsilon = 1e-5;
    void visit(auto& v) {
      v("g", g, "length at the start; 0: the root of the width", at_least(0));
      v("epsilon", epsilon, "added to the squared length", above(0));
    }
  };
  static inline const Info info{.name = "scale_norm",
                                .formula = "g x / |x|",
                                .source = "Nguyen and Salazar 2019, arXiv:1910.05895",
                                .parameters = "g sqrt(width), one number",
                                .saves = "x, 1/|x| of each row"};
  Settings settings;
  Parameter g;
  ScaleNormalization(const Spec& spec, const NormalizationOptions& options)
      : settings(settings_from<Settings>(spec)),
        g(Shape{1}, constant(settings.g > 0 ? settings.g : scalar::sqrt(static_cast<double>(options.width)))) {}
  Tensor forward(const Tensor& x, ForwardPass&) override { return record(ScaleNorm{settings.epsilon}, x, g.value); }
  void visit(Visitor& v) override { v("g", g); }
};
REGISTER_NORMALIZATION(ScaleNormalization);

GradientCase gradient_case(const CaseTensors& random) {
  return {{{"x", random({5, 7})}, {"g", random({1})}},
          [](const auto& in) { return record(ScaleNorm{0.1}, in[0], in[1]); },
          [](const auto& in) { return in[0] / sqrt(sum(in[0] * in[0], {-1}, true) + 0.1) * in[1]; }};
}
REGISTER_GRADIENT_CASE("normalization", "scale_norm", gradient_case);

}  // namespace
}  // namespace orrery::nn
