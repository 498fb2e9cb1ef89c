// Any activation instead of a normalization, as in DyT and Derf: no mean, no variance, no sum. Zhu
// et al. 2025, arXiv:2503.10622. The paper's ablations are dynamic(hardtanh), dynamic(sigmoid),
// dynamic(identity) and a fixed alpha.
//   y = F(u) weight + bias,   u = alpha x + shift          alpha and shift one number each, weight and bias by channel
// With g = dy and du = g weight F'(u):
//   dx = alpha du,   dalpha = sum of du x,   dshift = sum of du,   dweight = sum over rows of g F(u),   dbias = of g
//   dp_k = sum of g weight dF/dp_k(u), if F has learned parameters p, one set for the layer
// Saved for backward: x, for dalpha, because y does not determine x where F is flat. F(u) is
// recomputed. dalpha, dshift and dp are summed over tokens in the arithmetic type (chunks depend only
// on the sizes), then over channels in f64.
#include "nn/normalizations/base/dynamic.h"

#include "engine/autograd/hooks.h"
#include "engine/autograd/parameter_gradient.h"
#include "engine/loops/tensor_loops.h"
#include "engine/ops/ops.h"
#include "nn/base/gradient_case.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::nn {
namespace {

struct ByChannel {
  template <class A>
  HOST_DEVICE Values<double, 2> operator()(A alpha, A shift) const {
    return {{alpha, shift}};
  }
};

struct DynamicNorm {
  static constexpr const char* name = "dynamic_norm";
  Activation activation;

  // Returns t, or if undefined a tensor of `otherwise`: 0 for shift and bias, 1 for weight.
  static Tensor value_or_full(const Tensor& t, const Shape& shape, double otherwise, const Tensor& x) {
    return t ? t : Tensor::full_like(x, shape, otherwise);
  }
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight,
                 const Tensor& bias, const Tensor& p) const {
    const Tensor y = Tensor::empty_like(x);
    const Shape one{1}, channels{x.size(-1)};
    const Tensor s = value_or_full(shift, one, 0, x), w = value_or_full(weight, channels, 1, x),
                 b = value_or_full(bias, channels, 0, x);
    activation.role<DynamicNormRole>().forward(x, alpha, s, w, b, p, y);
    saved.save(x, alpha, s, w, p);
    return y;
  }
  Gradients<6> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &alpha = saved[1], &shift = saved[2], &weight = saved[3], &p = saved[4];
    const Shape channels{x.size(-1)};
    bool with_parameters = false;
    for (int i = 1; i < 6; ++i) with_parameters = with_parameters || saved.needs(i);
    DynamicNormRole::Sums sums;
    for (size_t k = 0; with_parameters && k < 4; ++k) sums[k] = empty_computed(x, channels);
    if (with_parameters && p) sums[4] = empty_computed(x, Shape{p.size(0), x.size(-1)});
    const Tensor dx = saved.take(0);
    activation.role<DynamicNormRole>().backward(x, alpha, shift, weight, p, dy, dx, sums);
    if (!with_parameters) return {dx, {}, {}, {}, {}, {}};
    const Tensor dalpha = Tensor::empty_like(x, Shape{1}, Dtype::f64), dshift = Tensor::empty_like(dalpha);
    sum_elements(name, ByChannel{}, out_sums<double>(dalpha, dshift), row_of(sums[2]), row_of(sums[3]));
    Gradients<6> d{dx};
    const Tensor dp = saved.needs(5) ? sum(sums[4].to(Dtype::f64), {-1}) : Tensor();
    const std::array<Tensor, 5> all = {dalpha, dshift, sums[0], sums[1], dp};
    for (int i = 1; i < 6; ++i) {
      if (!saved.needs(i)) continue;
      const ParameterGradient gradient(saved, i, i < 3 ? alpha : i < 5 ? weight : p);
      gradient.sum.copy_from(all[static_cast<size_t>(i - 1)]);
      d[static_cast<size_t>(i)] = gradient.done();
    }
    return d;
  }
};

Tensor reference(const Tensor& x, const Activation& activation, const Tensor& alpha, const Tensor& shift,
                 const Tensor& weight, const Tensor& bias, const Tensor& p = {}) {
  const Tensor y = activation(x * alpha + shift, p);
  return weight ? y * weight + bias : y;
}

class Dynamic final : public DynamicNormalization {
 public:
  struct Settings {
    Spec activation = parse_spec("tanh");
    double alpha = 0.5;
    bool learn_alpha = true, affine = true;
    template <class V>
    void visit(V& v) {
      v("activation", activation, "activation F; its learned parameters, if any, are one set for the layer");
      v("alpha", alpha, "factor of x; its initial value with learn_alpha=yes", between(-1e6, 1e6));
      v("learn_alpha", learn_alpha, "train alpha");
      v("affine", affine, "use a weight and a bias per channel");
    }
  };
  static inline const Info info{.name = "dynamic",
                                .formula = "F(alpha x) * weight + bias",
                                .source = "Zhu et al. 2025, arXiv:2503.10622",
                                .parameters = "alpha 0.5 (one number), weight 1, bias 0; those of F",
                                .saves = "x",
                                .takes_activation = true};

  Dynamic(const Spec& spec, const NormalizationOptions& options) : DynamicNormalization(parse(spec), options) {}

 private:
  static Form parse(const Spec& spec) {
    const auto s = settings_from<Settings>(spec);
    return {.activation = Activation(s.activation),
            .alpha = s.alpha,
            .learn_alpha = s.learn_alpha,
            .affine = s.affine};
  }
};
REGISTER_NORMALIZATION(Dynamic);

GradientCase gradient_case(const CaseTensors& random) {
  const Activation silu("silu(1.5)");
  return {{{"x", random({5, 7})},
           {"alpha", random({1})},
           {"shift", random({1})},
           {"weight", random({7})},
           {"bias", random({7})}},
          [silu](const auto& in) { return dynamic_norm(in[0], silu, in[1], in[2], in[3], in[4]); },
          [silu](const auto& in) { return reference(in[0], silu, in[1], in[2], in[3], in[4]); }};
}
REGISTER_GRADIENT_CASE("normalization", "dynamic", gradient_case);
GradientCase without_weight(const CaseTensors& random) {
  const Activation sigmoid("sigmoid");
  return {
      {{"x", random({2, 3, 5})}, {"alpha", random({1})}},
      [sigmoid](const auto& in) { return dynamic_norm(in[0], sigmoid, in[1]); },
      [sigmoid](const auto& in) { return reference(in[0], sigmoid, in[1], Tensor::zeros({1}, Dtype::f64), {}, {}); }};
}
REGISTER_GRADIENT_CASE("normalization", "dynamic", without_weight);
GradientCase learned(const CaseTensors& random) {
  const Activation xielu("xielu");
  return {{{"x", random({5, 7})},
           {"alpha", random({1})},
           {"shift", random({1})},
           {"weight", random({7})},
           {"bias", random({7})},
           {"p", random({2})}},
          [xielu](const auto& in) { return dynamic_norm(in[0], xielu, in[1], in[2], in[3], in[4], in[5]); },
          [xielu](const auto& in) { return reference(in[0], xielu, in[1], in[2], in[3], in[4], in[5]); }};
}
REGISTER_GRADIENT_CASE("normalization", "dynamic", learned);

}  // namespace

DynamicNormalization::DynamicNormalization(const Form& form, const NormalizationOptions& options)
    : activation_(form.activation), fixed_alpha_(form.alpha) {
  if (form.learn_alpha) alpha_ = Parameter(Shape{1}, constant(form.alpha));
  if (form.shift) shift_ = Parameter(Shape{1}, constant(*form.shift));
  if (form.affine) weight_ = Parameter(Shape{options.width}, constant(1));
  if (form.affine && options.bias) bias_ = Parameter(Shape{options.width}, constant(0));
}
Tensor DynamicNormalization::forward(const Tensor& x, ForwardPass&) {
  if (is_hooked(path(), "saturation")) hook(path(), "saturation", Tensor::full({1}, saturation(x)));
  return dynamic_norm(x, activation_.activation(), alpha(x), shift_.value, weight_.value, bias_.value,
                      activation_.parameters());
}
double DynamicNormalization::saturation(const Tensor& x) const {
  return saturation_fraction(x, alpha(x).to_vector()[0]);
}
void DynamicNormalization::visit(Visitor& v) {
  v("alpha", alpha_);
  v("shift", shift_);
  activation_.visit(v);
  v("weight", weight_);
  v("bias", bias_);
}

Tensor dynamic_norm(const Tensor& x, const Activation& activation, const Tensor& alpha, const Tensor& shift,
                    const Tensor& weight, const Tensor& bias, const Tensor& p) {
  check(x.shape().rank() >= 1 && alpha.shape() == Shape{1} && (!shift || shift.shape() == Shape{1}), "dynamic_norm: x ",
        x.shape(), " does not fit alpha ", alpha.shape(), "; alpha and shift are one number each, (1)");
  for (const Tensor& t : {weight, bias})
    check(!t || t.shape() == Shape{x.size(-1)}, "dynamic_norm: x ", x.shape(), " does not fit a weight or bias of ",
          t ? t.shape() : Shape{}, "; they need the size of the last axis");
  activation.check_parameters("dynamic_norm", p);
  for (const Tensor& t : {alpha, shift, weight, bias, p})
    if (t) check_same_kind("dynamic_norm", x, t);
  return record(DynamicNorm{activation}, x, alpha, shift, weight, bias, activation.formula_parameters(p));
}

}  // namespace orrery::nn
