// The loops of  y = F(u) weight + bias,  u = alpha x + shift,  for one formula F of nn/activations/.  With g = dy and
// du = g weight F'(u):
//   dx = alpha du,       dalpha = sum of du x,   dshift = sum of du      over all elements
//   dweight = sum of g F(u),   dbias = sum of g                          over the rows, one for each channel
//   dp_k = sum of g weight dF/dp_k(u)                                    if F has parameters p
// Each direction is one pass over its tensors; backward recomputes F(u). Sums over all elements are
// made by channel, so one reduce makes all sums, in an order that depends only on the sizes.
#pragma once

#include "engine/math/approx_float.h"
#include "engine/types/dispatch.h"
#include "engine/loops/loops.h"
#include "nn/formulas/dynamic_role.h"
#include "nn/formulas/formula.h"

namespace orrery::nn {
namespace detail {

// Returns F(u) and F'(u), from F(u) if the formula supports it, for results rounded to T next.
template <class T, class F, class A>
HOST_DEVICE Values<A, 2> value_and_derivative(const F& f, A x) {
  const FormulaFloat<T> u = x, value = f.value(u);
  if constexpr (requires { f.derivative_from_output(value); })
    return {{to_float(value), to_float(f.derivative_from_output(value))}};
  else
    return {{to_float(value), to_float(f.derivative(u))}};
}

template <class F, class T>
struct Normalize {
  F f;
  In<T> x, alpha, shift, weight, bias, p;
  Out<T> y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    using A = Arithmetic<T>;
    const auto formula = bound<A>(f, p.pointer);
    const A a = alpha[0], s = shift[0];
    const auto value = [&](A u) { return to_float(formula.value(FormulaFloat<T>(u))); };
    const Out<T> out = y.at(r * row.n);
    row.map(out, [&](A x_i, A w_i, A b_i) { return value(a * x_i + s) * w_i + b_i; }, x.at(r * row.n), weight, bias);
  }
};

template <class F, class T>
struct NormalizeInputGradient {  // dx only, if no parameter needs a gradient
  F f;
  In<T> x, alpha, shift, weight, p, dy;
  Out<T> dx;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    using A = Arithmetic<T>;
    const auto formula = bound<A>(f, p.pointer);
    const A a = alpha[0], s = shift[0];
    const auto derivative = [&](A u) { return value_and_derivative<T>(formula, u)[1]; };
    const auto gradient = [&](A x_i, A g_i, A w_i) { return a * g_i * w_i * derivative(a * x_i + s); };
    row.map(dx.at(r * row.n), gradient, x.at(r * row.n), dy.at(r * row.n), weight);
  }
};

template <class F, class T>
struct NormalizeGradients {  // writes dx; returns the element's terms of dweight, dbias, dalpha, dshift and dp
  F f;
  In<T> x, alpha, shift, weight, p, dy;
  Out<T> dx;
  int64_t channels;
  HOST_DEVICE auto operator()(int64_t i, int64_t r) const {
    using A = Arithmetic<T>;
    constexpr int count = learned_count<F>;
    const auto formula = bound<A>(f, p.pointer);
    const A a = alpha[0], in = x[i], g = dy[i], w = weight[i - r * channels];
    const A u = a * in + shift[0];
    const Values<A, 2> v = value_and_derivative<A>(formula, u);  // sums are not rounded to T
    const A du = g * w * v[1];
    dx[i] = a * du;
    Values<A, 4 + count> terms{{g * v[0], g, du * in, du}};
    if constexpr (count > 0) {
      formula.parameter_derivatives(u, terms.value + 4);
      for (int k = 4; k < 4 + count; ++k) terms[k] *= g * w;
    }
    return terms;
  }
};

}  // namespace detail

template <class F>
class DynamicNormRole::Of : public DynamicNormRole {
 public:
  explicit Of(const F& f) : f_(f) {}
  void forward(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight, const Tensor& bias,
               const Tensor& p, const Tensor& y) const override {
    const int64_t n = x.shape().rows(), channels = x.shape().last();
    dispatch(x.dtype(), role, [&]<class T>() {
      rows(x.device(), n, static_cast<int>(channels),
           detail::Normalize<F, T>{f_, in<T>(x), in<T>(alpha), in<T>(shift), in<T>(weight), in<T>(bias), in<T>(p),
                                   {y.mutable_data<T>()}});
    });
  }
  void backward(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight, const Tensor& p,
                const Tensor& dy, const Tensor& dx, const Sums& sums) const override {
    const int64_t n = x.shape().rows(), channels = x.shape().last();
    dispatch(x.dtype(), role, [&]<class T>() {
      const In<T> x_in = in<T>(x), a = in<T>(alpha), s = in<T>(shift), w = in<T>(weight), own = in<T>(p), g = in<T>(dy);
      const Out<T> out{dx.mutable_data<T>()};
      if (!sums[0]) {
        rows(x.device(), n, static_cast<int>(channels),
             detail::NormalizeInputGradient<F, T>{f_, x_in, a, s, w, own, g, out});
        return;
      }
      using A = Arithmetic<T>;
      Outputs<A, 4 + learned_count<F>> columns;
      for (int k = 0; k < 4 + learned_count<F>; ++k)
        columns.pointer[k] = k < 4 ? sums[static_cast<size_t>(k)].template mutable_data<A>()
                                   : sums[4].template mutable_data<A>() + (k - 4) * channels;
      reduce(x.device(), 1, n, channels, detail::NormalizeGradients<F, T>{f_, x_in, a, s, w, own, g, out, channels},
             columns);
    });
  }

 private:
  template <class T>
  static In<T> in(const Tensor& t) {
    return {t ? t.data<T>() : nullptr};
  }
  F f_;
};

}  // namespace orrery::nn
