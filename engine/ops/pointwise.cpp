// Elementary functions for reference implementations, and their derivatives.
#include "engine/autograd/autograd.h"
#include "engine/math/scalar.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

enum class Function { exp, log, sqrt, tanh, erf, reciprocal, abs, heaviside };
constexpr const char* names[] = {"exp", "log", "sqrt", "tanh", "erf", "reciprocal", "abs", "heaviside"};

template <Function F>
struct Value {  // f(x)
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    switch (F) {
      case Function::exp: return scalar::exp(x);
      case Function::log: return scalar::log(x);
      case Function::sqrt: return scalar::sqrt(x);
      case Function::tanh: return scalar::tanh(x);
      case Function::erf: return scalar::erf(x);
      case Function::reciprocal: return 1 / x;
      case Function::abs: return x < 0 ? -x : x;
      case Function::heaviside: break;
    }
    return x > 0 ? T(1) : T(0);
  }
};
template <Function F>
struct PointwiseBackward {  // dx = dy f'(x), where y = f(x)
  template <class T>
  HOST_DEVICE T operator()(T x, T y, T dy) const {
    switch (F) {
      case Function::exp: return dy * y;
      case Function::log: return dy * (1 / x);
      case Function::sqrt: return dy * (T(0.5) / y);
      case Function::tanh: return dy * (1 - y * y);
      case Function::erf: return dy * (T(1.1283791670955125739) * scalar::exp(-x * x));  // 2 / sqrt(pi)
      case Function::reciprocal: return dy * (-y * y);
      case Function::abs: return dy * (x > 0 ? T(1) : x < 0 ? T(-1) : T(0));
      case Function::heaviside: break;
    }
    return dy * 0;
  }
};

template <Function F>
struct Pointwise {
  static constexpr const char* name = names[static_cast<int>(F)];
  Tensor forward(Saved& saved, const Tensor& x) const {
    const Tensor y = Tensor::empty_like(x);
    dispatch(x.dtype(), name,
             [&]<class T>() { map(x.device(), x.numel(), Value<F>{}, y.mutable_data<T>(), x.data<T>()); });
    saved.save(x, y);
    return y;
  }
  Gradients<1> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor &x = saved[0], &y = saved[1], dx = Tensor::empty_like(x);
    dispatch(x.dtype(), name, [&]<class T>() {
      map(x.device(), x.numel(), PointwiseBackward<F>{}, dx.mutable_data<T>(), x.data<T>(), y.data<T>(), dy.data<T>());
    });
    return {dx};
  }
};

struct Choose {
  template <class T>
  HOST_DEVICE T operator()(T condition, T a, T b) const {
    return condition != 0 ? a : b;
  }
};
Tensor choose(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_same_kind("where", condition, a);
  check_same_kind("where", a, b);
  const Shape shape = broadcast_shape("where", broadcast_shape("where", condition.shape(), a.shape()), b.shape());
  const Tensor y = Tensor::empty_like(a, shape);
  dispatch(a.dtype(), "where", [&]<class T>() {
    map(a.device(), fold_axes<3>(shape, {&condition.shape(), &a.shape(), &b.shape()}), Choose{}, y.mutable_data<T>(),
        condition.data<T>(), a.data<T>(), b.data<T>());
  });
  return y;
}
struct Where {  // the gradient goes to the selected operand; selection, unlike multiplication, keeps NaN out
  static constexpr const char* name = "where";
  Shape a_shape, b_shape;
  Tensor forward(Saved& saved, const Tensor& condition, const Tensor& a, const Tensor& b) const {
    saved.save(condition);
    return choose(condition, a, b);
  }
  Gradients<3> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor zero = Tensor::zeros_like(dy, Shape{1});
    return {Tensor(), sum_to(choose(saved[0], dy, zero), a_shape), sum_to(choose(saved[0], zero, dy), b_shape)};
  }
};

}  // namespace

Tensor exp(const Tensor& x) { return record(Pointwise<Function::exp>{}, x); }
Tensor log(const Tensor& x) { return record(Pointwise<Function::log>{}, x); }
Tensor sqrt(const Tensor& x) { return record(Pointwise<Function::sqrt>{}, x); }
Tensor tanh(const Tensor& x) { return record(Pointwise<Function::tanh>{}, x); }
Tensor erf(const Tensor& x) { return record(Pointwise<Function::erf>{}, x); }
Tensor reciprocal(const Tensor& x) { return record(Pointwise<Function::reciprocal>{}, x); }
Tensor abs(const Tensor& x) { return record(Pointwise<Function::abs>{}, x); }
Tensor heaviside(const Tensor& x) { return record(Pointwise<Function::heaviside>{}, x); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return record(Where{a.shape(), b.shape()}, condition, a, b);
}

}  // namespace orrery
