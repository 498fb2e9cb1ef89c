// The loops of  y = F(u) weight + bias,  u = alpha x + shift,  for one formula F of nn/activations/.  With g = dy and
// du = g weight F'(u):
//   dx = alpha du,       dalpha = sum of du x,   dshift = sum of du      over all elements
//   dweight = sum of g F(u),   dbias = sum of g                          over the rows, one for each channel
// Each direction is one pass over its tensors; F(u) is computed again in backward.  The sums over all elements are kept
// by channel here, so that the four sums are columns of one reduce, whose order depends on the sizes only.
#pragma once

#include "engine/base/dispatch.h"
#include "engine/loops/loops.h"
#include "nn/activations/base/activation.h"

namespace orrery::nn::detail {

// F'(u), from F(u) if the formula knows how: it is there already.
template <class F, class A>
HOST_DEVICE A slope_at(const F& f, A u, A value) {
  if constexpr (requires { f.derivative_from_output(value); })
    return f.derivative_from_output(value);
  else
    return f.derivative(u);
}

template <class F, class T>
struct Normalize {
  F f;
  In<T> x, alpha, shift, weight, bias;
  Out<T> y;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const F formula = f;
    const Arithmetic<T> a = alpha[0], s = shift[0];
    const In<T> in = x.at(r * row.n), w = weight, b = bias;
    const Out<T> out = y.at(r * row.n);
    row.each([&](int i) { out[i] = formula.value(a * in[i] + s) * w[i] + b[i]; });
  }
};

template <class F, class T>
struct NormalizeInputGradient {  // dx alone, where no parameter is learned
  F f;
  In<T> x, alpha, shift, weight, dy;
  Out<T> dx;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    using A = Arithmetic<T>;
    const F formula = f;
    const A a = alpha[0], s = shift[0];
    const In<T> in = x.at(r * row.n), g = dy.at(r * row.n), w = weight;
    const Out<T> out = dx.at(r * row.n);
    row.each([&](int i) {
      const A u = a * in[i] + s;
      out[i] = a * g[i] * w[i] * slope_at(formula, u, formula.value(u));
    });
  }
};

template <class F, class T>
struct NormalizeGradients {  // writes dx; returns what the element adds to dweight, dbias, dalpha and dshift
  F f;
  In<T> x, alpha, shift, weight, dy;
  Out<T> dx;
  int64_t channels;
  HOST_DEVICE Values<Arithmetic<T>, 4> operator()(int64_t i, int64_t r) const {
    using A = Arithmetic<T>;
    const A a = alpha[0], in = x[i], g = dy[i], u = a * in + shift[0], value = f.value(u);
    const A du = g * weight[i - r * channels] * slope_at(f, u, value);
    dx[i] = a * du;
    return {{g * value, g, du * in, du}};
  }
};

template <class F>
struct NormalizeKernelsOf {
  using Operands = ActivationKernels::Normalized;
  template <class T>
  static const T* read(const void* p) {
    return static_cast<const T*>(p);
  }

  static void forward(const F& f, const Operands& o, void* y) {
    dispatch(o.dtype, "dynamic_norm", [&]<class T>() {
      rows(o.device, o.rows, static_cast<int>(o.channels),
           Normalize<F, T>{f,
                           {read<T>(o.x)},
                           {read<T>(o.alpha)},
                           {read<T>(o.shift)},
                           {read<T>(o.weight)},
                           {read<T>(o.bias)},
                           {static_cast<T*>(y)}});
    });
  }
  static void backward(const F& f, const Operands& o, const void* dy, void* dx, void* const* sums) {
    dispatch(o.dtype, "dynamic_norm", [&]<class T>() {
      const In<T> x{read<T>(o.x)}, alpha{read<T>(o.alpha)}, shift{read<T>(o.shift)}, weight{read<T>(o.weight)},
          g{read<T>(dy)};
      const Out<T> out{static_cast<T*>(dx)};
      if (!sums) {
        rows(o.device, o.rows, static_cast<int>(o.channels),
             NormalizeInputGradient<F, T>{f, x, alpha, shift, weight, g, out});
        return;
      }
      using A = Arithmetic<T>;
      Outputs<A, 4> columns;
      for (int k = 0; k < 4; ++k) columns.pointer[k] = static_cast<A*>(sums[k]);
      reduce(o.device, 1, o.rows, o.channels, NormalizeGradients<F, T>{f, x, alpha, shift, weight, g, out, o.channels},
             columns);
    });
  }
};

}  // namespace orrery::nn::detail
