// Conversions between dtypes and devices. backward converts the gradient back.
#include "engine/autograd/autograd.h"
#include "engine/loops/loops.h"
#include "engine/ops/ops.h"
#include "engine/types/dispatch.h"

namespace orrery {
namespace {

template <class To>
struct Convert {
  template <class T>
  HOST_DEVICE Arithmetic<To> operator()(T x) const {
    return static_cast<Arithmetic<To>>(x);
  }
};

struct Cast {
  static constexpr const char* name = "cast";
  Dtype before, after;
  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = Tensor::empty_like(x, x.shape(), after);
    dispatch_any(before, name, [&]<class From>() {
      dispatch_any(after, name, [&]<class To>() {
        map(x.device(), x.numel(), Convert<To>{}, y.mutable_data<To>(), x.data<From>());
      });
    });
    return y;
  }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {cast(dy, before)}; }
};

struct Move {
  static constexpr const char* name = "move";
  Device before, after;
  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = Tensor::empty(x.shape(), x.dtype(), after);
    copy_bytes(after, y.mutable_raw(), before, x.raw(), x.bytes());
    return y;
  }
  Gradients<1> backward(const Saved&, const Tensor& dy) const { return {move(dy, before)}; }
};

}  // namespace

Tensor cast(const Tensor& x, Dtype dtype) {
  return record(Cast{x.dtype(), dtype}, is_floating(dtype) ? x : x.detach());
}
Tensor move(const Tensor& x, Device device) { return record(Move{x.device(), device}, x); }

Tensor Tensor::to(Dtype wanted) const { return wanted == dtype() ? *this : cast(*this, wanted); }
Tensor Tensor::to(Device wanted) const { return wanted == device() ? *this : move(*this, wanted); }
void Tensor::copy_from(const Tensor& source) const {
  check(shape() == source.shape(), "copy_from: shapes ", shape(), " and ", source.shape(), " must be equal");
  const NoGrad guard;
  const Tensor same = source.to(dtype());
  copy_bytes(device(), mutable_raw(), same.device(), same.raw(), bytes());
}

}  // namespace orrery
