// Elementwise operations with broadcasting. With z = f(a, b): da = dz df/da, db = dz df/db, each
// summed over the axes along which its operand was repeated.
#include <algorithm>
#include <functional>

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_sums.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

struct MultiplyValue {
  template <class T>
  HOST_DEVICE T operator()(T a, T b) const {
    return a * b;
  }
};
struct MaximumValue {
  template <class T>
  HOST_DEVICE T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};
struct NotSmaller {  // 1 where a >= b
  template <class T>
  HOST_DEVICE T operator()(T a, T b) const {
    return b > a ? T(0) : T(1);
  }
};
struct AffineValue {  // factor x + offset
  double factor, offset;
  template <class T>
  HOST_DEVICE T operator()(T x) const {
    return T(factor) * x + T(offset);
  }
};

template <class F>
Tensor elementwise(const char* operation, const F& f, const Tensor& a, const Tensor& b) {
  check_same_kind(operation, a, b);
  const Shape shape = a.shape() == b.shape() ? a.shape() : broadcast_shape(operation, a.shape(), b.shape());
  const Tensor y = Tensor::empty_like(a, shape);
  dispatch(a.dtype(), operation, [&]<class T>() {
    if (a.shape() == b.shape())
      map(a.device(), y.numel(), f, y.mutable_data<T>(), a.data<T>(), b.data<T>());
    else
      map(a.device(), fold_axes<2>(shape, {&a.shape(), &b.shape()}), f, y.mutable_data<T>(), a.data<T>(), b.data<T>());
  });
  return y;
}
Tensor affine(const char* operation, const Tensor& x, double factor, double offset) {
  const Tensor y = Tensor::empty_like(x);
  dispatch(x.dtype(), operation, [&]<class T>() {
    map(x.device(), x.numel(), AffineValue{factor, offset}, y.mutable_data<T>(), x.data<T>());
  });
  return y;
}

template <int Sign>
struct Add {  // a + Sign b
  static constexpr const char* name = Sign > 0 ? "add" : "subtract";
  Shape a_shape, b_shape;
  Tensor forward(Saved&, const Tensor& a, const Tensor& b) const {
    return Sign > 0 ? elementwise(name, AddValue{}, a, b) : elementwise(name, std::minus<>(), a, b);
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    return {saved.needs(0) ? sum_to(dy, a_shape) : Tensor(),
            saved.needs(1) ? sum_to(Sign > 0 ? dy : -dy, b_shape) : Tensor()};
  }
};
struct Multiply {  // da = dy b, db = dy a
  static constexpr const char* name = "multiply";
  Shape a_shape, b_shape;
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.save(saved.needs(1) ? a : Tensor(), saved.needs(0) ? b : Tensor());
    return elementwise(name, MultiplyValue{}, a, b);
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    return {saved.needs(0) ? sum_to(multiply(dy, saved[1]), a_shape) : Tensor(),
            saved.needs(1) ? sum_to(multiply(dy, saved[0]), b_shape) : Tensor()};
  }
};
struct Divide {  // y = a / b: da = dy / b, db = -dy y / b
  static constexpr const char* name = "divide";
  Shape a_shape, b_shape;
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    const Tensor y = elementwise(name, std::divides<>(), a, b);
    saved.save(b, saved.needs(1) ? y : Tensor());
    return y;
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor da = divide(dy, saved[0]);
    return {saved.needs(0) ? sum_to(da, a_shape) : Tensor(),
            saved.needs(1) ? sum_to(-multiply(da, saved[1]), b_shape) : Tensor()};
  }
};
struct Maximum {  // the gradient goes to the larger operand, to a if they are equal
  static constexpr const char* name = "maximum";
  Shape a_shape, b_shape;
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    saved.save(a, b);
    return elementwise(name, MaximumValue{}, a, b);
  }
  Gradients<2> backward(const Saved& saved, const Tensor& dy) const {
    const Tensor to_a = multiply(dy, elementwise(name, NotSmaller{}, saved[0], saved[1]));
    return {saved.needs(0) ? sum_to(to_a, a_shape) : Tensor(), saved.needs(1) ? sum_to(dy - to_a, b_shape) : Tensor()};
  }
};
struct Scale {
  static constexpr const char* name = "scale";
  double factor;
  Tensor forward(Saved&, const Tensor& x) const { return affine(name, x, factor, 0); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {scale(dy, factor)}; }
};
struct Shift {
  static constexpr const char* name = "shift";
  double offset;
  Tensor forward(Saved&, const Tensor& x) const { return affine(name, x, 1, offset); }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {dy}; }
};

}  // namespace

Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out;
  for (int axis = 0; axis < rank; ++axis) {
    const int in_a = axis - (rank - a.rank()), in_b = axis - (rank - b.rank());
    const int64_t m = in_a >= 0 ? a[in_a] : 1, n = in_b >= 0 ? b[in_b] : 1;
    check(m == n || m == 1 || n == 1, operation, ": ", a, " and ", b, " do not broadcast; sizes must be equal or 1");
    out.append(m == 1 ? n : m);
  }
  return out;
}

Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  const int extra = dy.shape().rank() - shape.rank();
  std::vector<int> axes;
  for (int axis = 0; axis < dy.shape().rank(); ++axis)
    if (axis < extra || (shape[axis - extra] == 1 && dy.size(axis) != 1)) axes.push_back(axis);
  return sum(dy, axes, true).reshape(shape);
}

Tensor add(const Tensor& a, const Tensor& b) { return record(Add<1>{a.shape(), b.shape()}, a, b); }
Tensor subtract(const Tensor& a, const Tensor& b) { return record(Add<-1>{a.shape(), b.shape()}, a, b); }
Tensor multiply(const Tensor& a, const Tensor& b) { return record(Multiply{a.shape(), b.shape()}, a, b); }
Tensor divide(const Tensor& a, const Tensor& b) { return record(Divide{a.shape(), b.shape()}, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return record(Maximum{a.shape(), b.shape()}, a, b); }
Tensor scale(const Tensor& x, double factor) { return record(Scale{factor}, x); }
Tensor shift(const Tensor& x, double offset) { return record(Shift{offset}, x); }

Tensor Tensor::full(const Shape& shape, double value, Dtype dtype, Device device) {
  if (device != Device::cpu && is_floating(dtype)) {  // made on the device, so that a CUDA graph can capture it
    const NoGrad guard;
    return shift(zeros(shape, dtype, device), value);
  }
  const Tensor x = empty(shape, dtype, Device::cpu);
  dispatch_any(dtype, "full", [&]<class T>() {
    std::fill_n(x.mutable_data<T>(), x.numel(), static_cast<T>(static_cast<Arithmetic<T>>(value)));
  });
  return x.to(device);
}

}  // namespace orrery
