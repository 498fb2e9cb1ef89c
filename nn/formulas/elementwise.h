// The role (activation.h) of a formula without parameters on whole tensors.
#pragma once

#include "engine/loops/loops.h"
#include "engine/math/approx_float.h"
#include "engine/types/dispatch.h"
#include "nn/formulas/formula.h"

namespace orrery::nn {

namespace detail {

template <class F>
struct ValueOf {  // x -> F(x)
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return f.value(x);
  }
};
template <class F>
struct DerivativeTimes {  // (x, g) -> F'(x) g
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x, T g) const {
    return f.derivative(x) * g;
  }
};
template <class F>
struct DerivativeFromOutputTimes {  // (F(x), g) -> F'(x) g
  F f;
  template <class T>
  HOST_DEVICE T operator()(T y, T g) const {
    return f.derivative_from_output(y) * g;
  }
};
template <class F>
struct ValueAndDerivativeTimes {  // (x, g) -> F(x), F'(x) g
  F f;
  template <class T>
  HOST_DEVICE Values<T, 2> operator()(T x, T g) const {
    return {{f.value(x), f.derivative(x) * g}};
  }
};
template <class F>
struct Gated {  // (x, up) -> F(x) up
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x, T up) const {
    return f.value(x) * up;
  }
};
template <class F>
struct GatedBackward {  // (x, up, g) -> F'(x) up g, F(x) g
  F f;
  template <class T>
  HOST_DEVICE Values<T, 2> operator()(T x, T up, T g) const {
    return {{f.derivative(x) * up * g, f.value(x) * g}};
  }
};

}  // namespace detail

template <class F>
class ElementwiseRole::Of : public ElementwiseRole {
 public:
  explicit Of(const F& f) : f_(f) {}
  void forward(const Tensor& x, const Tensor& y) const override {
    const int64_t n = x.numel();
    dispatch(x.dtype(), role, [&]<class T>() {
      map(x.device(), n, approx_function<T>(detail::ValueOf<F>{f_}), y.mutable_data<T>(), x.data<T>());
    });
  }
  void backward(const Tensor& x_or_y, const Tensor& dy, const Tensor& dx) const override {
    using Derivative = std::conditional_t<HasDerivativeFromOutput<F>, detail::DerivativeFromOutputTimes<F>,
                                          detail::DerivativeTimes<F>>;
    const int64_t n = dx.numel();
    dispatch(dx.dtype(), role, [&]<class T>() {
      map(dx.device(), n, approx_function<T>(Derivative{f_}), dx.mutable_data<T>(), x_or_y.data<T>(), dy.data<T>());
    });
  }
  void gate(const Tensor& x, const Tensor& up, const Tensor& y) const override {
    const int64_t n = x.numel();
    dispatch(x.dtype(), "gate", [&]<class T>() {
      map(x.device(), n, approx_function<T>(detail::Gated<F>{f_}), y.mutable_data<T>(), x.data<T>(), up.data<T>());
    });
  }
  void gate_backward(const Tensor& x, const Tensor& up, const Tensor& dy, const Tensor& dx,
                     const Tensor& dup) const override {
    const int64_t n = x.numel();
    dispatch(x.dtype(), "gate", [&]<class T>() {
      map(x.device(), n, approx_function<T>(detail::GatedBackward<F>{f_}),
          Outputs<T, 2>{{dx.mutable_data<T>(), dup.mutable_data<T>()}}, x.data<T>(), up.data<T>(), dy.data<T>());
    });
  }

 private:
  F f_;
};

}  // namespace orrery::nn
