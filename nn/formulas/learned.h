// A formula with parameters on whole tensors: p is (n), or (n, C) with a column per channel of x.
#pragma once

#include "engine/loops/loops.h"
#include "engine/types/dispatch.h"
#include "nn/formulas/formula.h"

namespace orrery::nn {

namespace detail {

template <class F, class T, bool PerChannel, bool Backward>
struct LearnedMap {  // row by row: y = F(x; p), or y = dF/dx g
  F f;
  const T* p;
  In<T> x, g;
  Out<T> y;
  int n;
  template <class Row>
  HOST_DEVICE void operator()(Row row, int64_t r) const {
    using A = Arithmetic<T>;
    const auto in = x.at(r * n), dy = Backward ? g.at(r * n) : g;
    const auto out = y.at(r * n);
    const auto my = *this;
    const auto shared = bound<A>(f, p);
    row.each([=](int i) {
      const auto own = [&] {  // a choice at run time would prevent vectorization
        if constexpr (PerChannel)
          return bound<A>(my.f, my.p + i, my.n);
        else
          return shared;
      }();
      if constexpr (Backward)
        out[i] = own.derivative(in[i]) * dy[i];
      else
        out[i] = own.value(in[i]);
    });
  }
};
template <class F, class T, bool PerChannel>
struct LearnedTerms {  // element i's terms of the parameter gradients
  F f;
  const T* p;
  In<T> x, g;
  int64_t channels;
  HOST_DEVICE Values<Arithmetic<T>, F::parameters> operator()(int64_t i, int64_t row) const {
    const int64_t channel = PerChannel ? i - row * channels : 0;
    Values<Arithmetic<T>, F::parameters> terms;
    bound<Arithmetic<T>>(f, p + channel, PerChannel ? channels : 1).parameter_derivatives(x[i], terms.value);
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
    dispatch_form(x, p, [&]<class T, bool PerChannel>() { map_rows<T, PerChannel, false>(x, p, {}, y); });
  }
  void backward(const Tensor& x, const Tensor& p, const Tensor& dy, const Tensor& dx) const override {
    dispatch_form(x, p, [&]<class T, bool PerChannel>() { map_rows<T, PerChannel, true>(x, p, dy, dx); });
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
  template <class T, bool PerChannel, bool Backward>
  void map_rows(const Tensor& x, const Tensor& p, const Tensor& g, const Tensor& y) const {
    const int n = static_cast<int>(x.shape().last());
    rows(x.device(), x.shape().rows(), n,
         detail::LearnedMap<F, T, PerChannel, Backward>{
             f_, p.data<T>(), {x.data<T>()}, {g ? g.data<T>() : nullptr}, {y.mutable_data<T>()}, n});
  }
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
