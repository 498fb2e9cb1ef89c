// A formula with parameters on whole tensors: p is (n), or (n, C) with a column per channel of x.
#pragma once

#include "engine/loops/loops.h"
#include "engine/types/dispatch.h"
#include "nn/formulas/formula.h"

namespace orrery::nn {

namespace detail {

// Returns the parameters of element (or channel) i: p[k], or p[k][i]. A choice at run time
// would prevent vectorization.
template <class F, bool PerChannel, class T>
HOST_DEVICE Values<Arithmetic<T>, F::parameters> parameters_at(const T* p, int64_t channels, int64_t i) {
  Values<Arithmetic<T>, F::parameters> own;
  for (int k = 0; k < F::parameters; ++k) own[k] = static_cast<Arithmetic<T>>(p[PerChannel ? k * channels + i : k]);
  return own;
}

template <class F, class T, bool PerChannel>
struct LearnedValue {  // y = F(x; p), row by row
  F f;
  const T* p;
  In<T> x;
  Out<T> y;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = x.at(r * n);
    const auto out = y.at(r * n);
    const auto my = *this;
    if constexpr (PerChannel) {
      row.each([=](int i) { out[i] = my.f.value(in[i], parameters_at<F, true>(my.p, my.n, i).value); });
    } else {
      const auto shared = parameters_at<F, false>(p, 0, 0);
      row.each([=](int i) { out[i] = my.f.value(in[i], shared.value); });
    }
  }
};
template <class F, class T, bool PerChannel>
struct LearnedBackward {  // dx = dF/dx g
  F f;
  const T* p;
  In<T> x, g;
  Out<T> dx;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    const auto in = x.at(r * n), dy = g.at(r * n);
    const auto out = dx.at(r * n);
    const auto my = *this;
    if constexpr (PerChannel) {
      row.each([=](int i) { out[i] = my.f.derivative(in[i], parameters_at<F, true>(my.p, my.n, i).value) * dy[i]; });
    } else {
      const auto shared = parameters_at<F, false>(p, 0, 0);
      row.each([=](int i) { out[i] = my.f.derivative(in[i], shared.value) * dy[i]; });
    }
  }
};
template <class F, class T, bool PerChannel>
struct LearnedTerms {  // element i's terms of the parameter gradients
  F f;
  const T* p;
  In<T> x, g;
  int64_t channels;
  HOST_DEVICE Values<Arithmetic<T>, F::parameters> operator()(int64_t i, int64_t row) const {
    const auto own = parameters_at<F, PerChannel>(p, channels, i - row * channels);
    Values<Arithmetic<T>, F::parameters> terms;
    f.parameter_derivatives(x[i], own.value, terms.value);
    for (int k = 0; k < F::parameters; ++k) terms[k] *= g[i];
    return terms;
  }
};

}  // namespace detail

template <class F>
class LearnedRole::Of : public LearnedRole {
 public:
  explicit Of(const F& f) : f_(f) {}
  void forward(const Tensor& x, const Tensor& p, const Tensor& y) const override {
    const int64_t all = x.shape().rows();
    const int n = static_cast<int>(x.shape().last());
    dispatch_form(x, p, [&]<class T, bool PerChannel>() {
      rows(x.device(), all, n,
           detail::LearnedValue<F, T, PerChannel>{f_, p.data<T>(), {x.data<T>()}, {y.mutable_data<T>()}, n});
    });
  }
  void backward(const Tensor& x, const Tensor& p, const Tensor& dy, const Tensor& dx) const override {
    const int64_t all = x.shape().rows();
    const int n = static_cast<int>(x.shape().last());
    dispatch_form(x, p, [&]<class T, bool PerChannel>() {
      rows(x.device(), all, n,
           detail::LearnedBackward<F, T, PerChannel>{
               f_, p.data<T>(), {x.data<T>()}, {dy.data<T>()}, {dx.mutable_data<T>()}, n});
    });
  }
  void parameters_backward(const Tensor& x, const Tensor& p, const Tensor& dy, const Tensor& dp) const override {
    const int64_t rows = x.shape().rows(), channels = x.shape().last();
    dispatch_form(x, p, [&]<class T, bool PerChannel>() {
      const int64_t inner = PerChannel ? channels : 1;
      Outputs<T, F::parameters> out;
      for (int k = 0; k < F::parameters; ++k) out.pointer[k] = dp.mutable_data<T>() + k * inner;
      reduce(x.device(), 1, PerChannel ? rows : rows * channels, inner,
             detail::LearnedTerms<F, T, PerChannel>{f_, p.data<T>(), {x.data<T>()}, {dy.data<T>()}, channels}, out);
    });
  }

 private:
  // Calls body<T, PerChannel>() for the dtype of x and the rank of p.
  template <class Body>
  static void dispatch_form(const Tensor& x, const Tensor& p, const Body& body) {
    dispatch(x.dtype(), role, [&]<class T>() {
      p.shape().rank() == 2 ? body.template operator()<T, true>() : body.template operator()<T, false>();
    });
  }
  F f_;
};

}  // namespace orrery::nn
