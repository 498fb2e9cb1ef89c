// Members that need no operations; recorded members are defined with their operations (engine/ops).
#include "engine/tensor/tensor.h"

#include <cmath>
#include <cstring>
#include <iomanip>

#include "engine/types/dispatch.h"

namespace orrery {
namespace {

const TensorImpl& impl_of(const std::shared_ptr<TensorImpl>& impl) {
  check(impl != nullptr, "tensor: undefined; assign a value first");
  return *impl;
}

template <class From>
std::vector<double> as_doubles(const From* data, int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = static_cast<double>(static_cast<Arithmetic<From>>(data[i]));
  return values;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, Dtype dtype, Device device) {
  auto buffer = std::make_shared<Buffer>(device, shape.numel() * bytes_of(dtype));
  return view(std::move(buffer), 0, shape, dtype);
}
Tensor Tensor::view(std::shared_ptr<Buffer> buffer, int64_t offset, const Shape& shape, Dtype dtype) {
  auto impl = std::make_shared<TensorImpl>();
  impl->buffer = std::move(buffer);
  impl->offset = offset * bytes_of(dtype);
  impl->shape = shape;
  impl->dtype = dtype;
  return Tensor(std::move(impl));
}
Tensor Tensor::zeros(const Shape& shape, Dtype dtype, Device device) {
  const Tensor x = empty(shape, dtype, device);
  zero_bytes(device, x.mutable_raw(), x.bytes());
  return x;
}
Tensor Tensor::from(const Shape& shape, std::span<const double> values, Dtype dtype) {
  check(shape.numel() == static_cast<int64_t>(values.size()), "from: the number of values (", values.size(),
        ") must equal the elements of shape ", shape);
  const Tensor x = empty(shape, dtype, Device::cpu);
  dispatch_any(dtype, "from", [&]<class T>() {
    T* const out = x.mutable_data<T>();
    for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(static_cast<Arithmetic<T>>(values[i]));
  });
  return x;
}
Tensor Tensor::from(const Shape& shape, std::initializer_list<double> values, Dtype dtype) {
  return from(shape, std::span<const double>(values.begin(), values.size()), dtype);
}
Tensor Tensor::from(const Shape& shape, std::span<const int32_t> values) {
  check(shape.numel() == static_cast<int64_t>(values.size()), "from: the number of values (", values.size(),
        ") must equal the elements of shape ", shape);
  const Tensor x = empty(shape, Dtype::i32, Device::cpu);
  std::memcpy(x.mutable_raw(), values.data(), values.size_bytes());
  return x;
}

const Shape& Tensor::shape() const { return impl_of(impl_).shape; }
Dtype Tensor::dtype() const { return impl_of(impl_).dtype; }
Device Tensor::device() const { return impl_of(impl_).buffer->device(); }

const void* Tensor::raw(Dtype wanted) const {
  const TensorImpl& impl = impl_of(impl_);
  if (impl.dtype != wanted)
    fail("tensor: dtype is ", name(impl.dtype), ", but ", name(wanted),
         " is needed; convert with .to(Dtype::", name(wanted), ")");
  return impl.buffer->data() + impl.offset;
}
void* Tensor::mutable_raw(Dtype wanted) const {
  void* const data = const_cast<void*>(raw(wanted));
  ++impl_->buffer->version;
  return data;
}
std::vector<double> Tensor::to_vector() const {
  const Tensor host = device() == Device::cpu ? *this : empty(shape(), dtype(), Device::cpu);
  if (device() != Device::cpu) copy_bytes(Device::cpu, host.mutable_raw(), device(), raw(), bytes());
  return dispatch_any(dtype(), "to_vector", [&]<class T>() { return as_doubles(host.data<T>(), numel()); });
}
double Tensor::item() const {
  check(numel() == 1, "item: the tensor has ", numel(), " elements, shape ", shape(),
        "; take one with operator[] or sum()");
  return to_vector()[0];
}
Tensor Tensor::flat_view(int64_t offset, const Shape& shape) const {
  const TensorImpl& base = impl_of(impl_);
  return view(base.buffer, base.offset / bytes_of(base.dtype) + offset, shape, base.dtype);
}
Tensor Tensor::detach() const { return flat_view(0, shape()); }
Tensor Tensor::clone() const {
  const Tensor copy = empty_like(*this);
  copy_bytes(device(), copy.mutable_raw(), device(), raw(), bytes());
  return copy;
}

bool Tensor::requires_grad() const { return impl_ && impl_->requires_grad; }
const Tensor& Tensor::set_requires_grad(bool wanted) const {
  check(!impl_of(impl_).edge, "set_requires_grad: the tensor is the result of a recorded operation; detach() it first");
  check(!wanted || is_floating(dtype()), "set_requires_grad: a tensor of dtype ", name(dtype()),
        " has no gradient; convert with .to(Dtype::f32)");
  impl_->requires_grad = wanted;
  return *this;
}
Tensor Tensor::grad() const {
  const TensorImpl& impl = impl_of(impl_);
  if (impl.stale && impl.gradient) {
    zero_bytes(impl.gradient.device(), impl.gradient.mutable_raw(), impl.gradient.bytes());
    impl_->stale = false;
  }
  return impl.gradient;
}
void Tensor::set_grad(const Tensor& g) const {
  check(!g || g.shape() == shape(), "set_grad: a gradient of shape ", g ? g.shape() : Shape(),
        " must have the shape of its tensor, ", shape());
  impl_->gradient = g;
  impl_->stale = impl_->has_fixed_gradient = false;
}
void Tensor::zero_grad() const {
  if (impl_of(impl_).has_fixed_gradient)
    impl_->stale = true;
  else
    impl_->gradient = {};
}
bool Tensor::grad_is_stale() const { return impl_of(impl_).stale; }
void check_same_kind(const char* operation, const Tensor& a, const Tensor& b) {
  if (a.device() != b.device())
    fail(operation, ": one operand is on ", a.device(), ", the other on ", b.device(),
         "; move one with .to(Device::", a.device(), ")");
  if (a.dtype() != b.dtype())
    fail(operation, ": dtypes differ: ", name(a.dtype()), " and ", name(b.dtype()),
         "; convert one with .to(Dtype::", name(a.dtype()), ")");
}

namespace {

// Prints axes from the outside in; of more than eight entries, the first and last three.
void print_axis(std::ostream& out, const std::vector<double>& values, const Shape& shape, int axis, int64_t at) {
  if (axis == shape.rank()) {
    out << values[static_cast<size_t>(at)];
    return;
  }
  const int64_t n = shape[axis];
  int64_t step = 1;
  for (int a = axis + 1; a < shape.rank(); ++a) step *= shape[a];
  const bool inner = axis + 1 == shape.rank();
  out << '[';
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) out << (inner ? ", " : ",\n" + std::string(static_cast<size_t>(axis) + 1, ' '));
    if (n > 8 && i == 3) {
      out << "...";
      i = n - 4;
      continue;
    }
    print_axis(out, values, shape, axis + 1, at + i * step);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  if (!x) return out << "undefined tensor";
  std::ostringstream numbers;
  numbers.exceptions(std::ios::badbit);
  numbers << std::setprecision(5);
  print_axis(numbers, x.to_vector(), x.shape(), 0, 0);
  out << name(x.dtype()) << x.shape();
  if (x.device() != Device::cpu) out << " on " << x.device();
  return out << (x.shape().rank() > 1 ? "\n" : " ") << numbers.str();
}

}  // namespace orrery
