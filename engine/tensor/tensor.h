// A tensor: a handle to a dense row-major array of one dtype on one device. Copies of a handle
// share the numbers, the gradient and the node in the autograd graph.
#pragma once

#include <memory>
#include <ostream>
#include <span>
#include <vector>

#include "engine/tensor/storage.h"
#include "engine/types/device.h"
#include "engine/types/dtype.h"
#include "engine/types/shape.h"

namespace orrery {

struct Node;
struct TensorImpl;

// The target of a gradient: output `output` of a node, or a leaf. Never a buffer.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  std::shared_ptr<TensorImpl> leaf;
  explicit operator bool() const { return node || leaf; }
};

class Tensor {
 public:
  Tensor() = default;  // undefined: means "absent"

  // Return a tensor of `shape`; the numbers of an empty one are undefined.
  static Tensor empty(const Shape& shape, Dtype dtype, Device device);
  static Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = Device::cpu);
  static Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = Device::cpu);
  // On the device of x, with its dtype unless another is given: for the results of operations.
  static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
  static Tensor empty_like(const Tensor& x, const Shape& shape) { return empty(shape, x.dtype(), x.device()); }
  static Tensor empty_like(const Tensor& x, const Shape& shape, Dtype dtype) { return empty(shape, dtype, x.device()); }
  static Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }
  static Tensor zeros_like(const Tensor& x, const Shape& shape) { return zeros(shape, x.dtype(), x.device()); }
  static Tensor full_like(const Tensor& x, const Shape& shape, double value) {
    return full(shape, value, x.dtype(), x.device());
  }
  // Converts the numbers to `dtype`; their count must be shape.numel().
  static Tensor from(const Shape& shape, std::span<const double> values, Dtype dtype = Dtype::f32);
  static Tensor from(const Shape& shape, std::initializer_list<double> values, Dtype dtype = Dtype::f32);
  static Tensor from(const Shape& shape, std::span<const int32_t> values);
  // Returns a view of `buffer` from element `offset` on, such as a slice of a flat buffer.
  static Tensor view(std::shared_ptr<Buffer> buffer, int64_t offset, const Shape& shape, Dtype dtype);

  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const;
  int64_t size(int axis) const { return shape()[axis]; }
  int64_t numel() const { return shape().numel(); }
  int64_t bytes() const { return numel() * bytes_of(dtype()); }
  Dtype dtype() const;
  Device device() const;

  // The numbers. T must be the dtype's storage type; on Device::cuda the pointer is a device
  // pointer. mutable_data counts as a change in place.
  template <class T>
  const T* data() const {
    return static_cast<const T*>(raw(dtype_of<T>));
  }
  template <class T>
  T* mutable_data() const {
    return static_cast<T*>(mutable_raw(dtype_of<T>));
  }
  const void* raw() const { return raw(dtype()); }
  void* mutable_raw() const { return mutable_raw(dtype()); }
  double item() const;                         // the only element, from any device
  std::vector<double> to_vector() const;       // all elements as doubles, from any device
  void copy_from(const Tensor& source) const;  // in place; same shape, any dtype and device; not recorded

  // Layout: without copies, recorded.
  Tensor reshape(const Shape& shape) const;        // same number of elements
  Tensor slice(int64_t begin, int64_t end) const;  // rows [begin, end) of the first axis
  Tensor operator[](int64_t index) const;          // slice(index, index + 1) without the first axis
  // Conversions: recorded; return the same handle if nothing changes.
  Tensor to(Dtype dtype) const;
  Tensor to(Device device) const;
  Tensor clone() const;  // a copy of the numbers, without the graph
  // Returns a view of `shape` from element `offset` on, without the graph and without checks.
  Tensor flat_view(int64_t offset, const Shape& shape) const;
  Tensor detach() const;  // shares the numbers, without the graph

  bool requires_grad() const;
  const Tensor& set_requires_grad(bool wanted = true) const;  // throws unless this is a leaf
  Tensor grad() const;                                        // undefined if no gradient has arrived
  void set_grad(const Tensor& g) const;                       // an undefined tensor removes it
  // Makes the gradient zero without touching memory: the next one to arrive overwrites it.
  void zero_grad() const;
  bool grad_is_stale() const;  // true after zero_grad until a gradient arrives
  void backward() const;       // throws unless there is one element

  const std::shared_ptr<TensorImpl>& impl() const { return impl_; }
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

 private:
  const void* raw(Dtype dtype) const;
  void* mutable_raw(Dtype dtype) const;
  std::shared_ptr<TensorImpl> impl_;
};

struct TensorImpl {
  std::shared_ptr<Buffer> buffer;
  int64_t offset = 0;  // bytes
  Shape shape;
  Dtype dtype = Dtype::f32;
  bool requires_grad = false;
  bool stale = false;               // the gradient counts as zero, regardless of its memory
  bool has_fixed_gradient = false;  // `gradient` is a view of a flat buffer, which operations write: FlatParameters
  Edge edge;                        // node that recorded this result
  Tensor gradient;                  // gradient of a leaf
};

std::ostream& operator<<(std::ostream& out, const Tensor& x);  // shape, dtype, numbers (outer ones of many)

// Throws with the name of the operation if two operands differ in dtype or device.
void check_same_kind(const char* operation, const Tensor& a, const Tensor& b);

}  // namespace orrery
