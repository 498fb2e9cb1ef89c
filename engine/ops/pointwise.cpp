// Elementary functions for reference implementations: each formula with its derivative.
#include "engine/autograd/autograd.h"
#include "engine/math/scalar.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

// A formula: value(x), and its derivative(x, y) where y = value(x).
struct Exp {
  static constexpr const char* name = "exp";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::exp(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T, T y) const {
    return y;
  }
};
struct Log {
  static constexpr const char* name = "log";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::log(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x, T) const {
    return 1 / x;
  }
};
struct Sqrt {
  static constexpr const char* name = "sqrt";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::sqrt(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T, T y) const {
    return T(0.5) / y;
  }
};
struct Tanh {
  static constexpr const char* name = "tanh";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::tanh(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T, T y) const {
    return 1 - y * y;
  }
};
struct Erf {
  static constexpr const char* name = "erf";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return scalar::erf(x);
  }
  template <class T>
  HOST_DEVICE T derivative(T x, T) const {
    return T(1.1283791670955125739) * scalar::exp(-x * x);  // 2 / sqrt(pi)
  }
};
struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return 1 / x;
  }
  template <class T>
  HOST_DEVICE T derivative(T, T y) const {
    return -y * y;
  }
};
struct Abs {
  static constexpr const char* name = "abs";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x < 0 ? -x : x;
  }
  template <class T>
  HOST_DEVICE T derivative(T x, T) const {
    return x > 0 ? T(1) : x < 0 ? T(-1) : T(0);
  }
};
struct Heaviside {
  static constexpr const char* name = "heaviside";
  template <class T>
  HOST_DEVICE T value(T x) const {
    return x > 0 ? T(1) : T(0);
  }
  template <class T>
  HOST_DEVICE T derivative(T, T) const {
    return 0;
  }
};

template <class F>
struct Value {
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return f.value(x);
  }
};
template <class F>
struct PointwiseBackward {  // dx = dy f'(x)
  F f;
  template <class T>
  HOST_DEVICE T operator()(T x, T y, T dy) const {
    return dy * f.derivative(x, y);
  }
};

template <class F>
struct Pointwise {
  static constexpr const char* name = F::name;
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

Tensor exp(const Tensor& x) { return record(Pointwise<Exp>{}, x); }
Tensor log(const Tensor& x) { return record(Pointwise<Log>{}, x); }
Tensor sqrt(const Tensor& x) { return record(Pointwise<Sqrt>{}, x); }
Tensor tanh(const Tensor& x) { return record(Pointwise<Tanh>{}, x); }
Tensor erf(const Tensor& x) { return record(Pointwise<Erf>{}, x); }
Tensor reciprocal(const Tensor& x) { return record(Pointwise<Reciprocal>{}, x); }
Tensor abs(const Tensor& x) { return record(Pointwise<Abs>{}, x); }
Tensor heaviside(const Tensor& x) { return record(Pointwise<Heaviside>{}, x); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return record(Where{a.shape(), b.shape()}, condition, a, b);
}

}  // namespace orrery
