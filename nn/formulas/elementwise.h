// The role (activation.h) of a formula, with or without parameters, on whole tensors.
#pragma once

#include "engine/loops/loops.h"
#include "engine/math/approx_float.h"
#include "engine/types/dispatch.h"
#include "nn/formulas/formula.h"
#include "nn/formulas/learned.h"

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
  void forward(const Tensor& x, [[maybe_unused]] const Tensor& p, const Tensor& y) const override {
    if constexpr (learned)
      dispatch_form(x, p, [&]<class T, bool PerChannel>() { map_rows<T, PerChannel, false>(x, p, {}, y); });
    else
      map_all(detail::ValueOf<F>{f_}, y, x);
  }
  void backward(const Tensor& x_or_y, [[maybe_unused]] const Tensor& p, const Tensor& dy,
                const Tensor& dx) const override {
    using Derivative = std::conditional_t<HasDerivativeFromOutput<F>, detail::DerivativeFromOutputTimes<F>,
                                          detail::DerivativeTimes<F>>;
    if constexpr (learned)
      dispatch_form(dx, p, [&]<class T, bool PerChannel>() { map_rows<T, PerChannel, true>(x_or_y, p, dy, dx); });
    else
      map_all(Derivative{f_}, dx, x_or_y, dy);
  }
  void parameters_backward([[maybe_unused]] const Tensor& x, [[maybe_unused]] const Tensor& p,
                           [[maybe_unused]] const Tensor& dy, [[maybe_unused]] const Tensor& dp) const override {
    if constexpr (learned) {
      const int64_t rows = x.shape().rows(), channels = x.shape().last();
      dispatch_form(x, p, [&]<class T, bool PerChannel>() {
        const int64_t inner = PerChannel ? channels : 1;
        Outputs<T, F::parameters> out;
        for (int k = 0; k < F::parameters; ++k) out.pointer[k] = dp.mutable_data<T>() + k * inner;
        reduce(x.device(), 1, PerChannel ? rows : rows * channels, inner,
               detail::LearnedTerms<F, T, PerChannel>{f_, p.data<T>(), {x.data<T>()}, {dy.data<T>()}, channels}, out);
      });
    }
  }
  void gate(const Tensor& x, const Tensor& up, const Tensor& y) const override {
    refuse_parameters();
    if constexpr (!learned) map_all(detail::Gated<F>{f_}, y, x, up);
  }
  void gate_backward(const Tensor& x, const Tensor& up, const Tensor& dy, const Tensor& dx,
                     const Tensor& dup) const override {
    refuse_parameters();
    if constexpr (!learned)
      dispatch(x.dtype(), role, [&]<class T>() {
        map(x.device(), x.numel(), approx_function<T>(detail::GatedBackward<F>{f_}),
            Outputs<T, 2>{{dx.mutable_data<T>(), dup.mutable_data<T>()}}, x.data<T>(), up.data<T>(), dy.data<T>());
      });
  }

 private:
  static constexpr bool learned = learned_count<F> > 0;
  static void refuse_parameters() {
    check(!learned, role, ": '", F::info.name, "' has learned parameters, which are not supported here; use another");
  }
  template <class Function, class... In>
  static void map_all(const Function& function, const Tensor& out, const In&... in) {
    dispatch(out.dtype(), role, [&]<class T>() {
      map(out.device(), out.numel(), approx_function<T>(function), out.mutable_data<T>(), in.template data<T>()...);
    });
  }
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
