// The one tensor type: a handle to a dense row-major array of one dtype on one device.  Copies of a handle share the
// numbers, the gradient and the place in the graph.
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
struct TensorBody;

// Where a gradient goes: to output `output` of a recorded call, or to a leaf.  Never to a buffer.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  std::shared_ptr<TensorBody> leaf;
  explicit operator bool() const { return node || leaf; }
};

class Tensor {
 public:
  Tensor() = default;  // undefined: stands for "absent"

  static Tensor empty(const Shape& shape, Dtype dtype, Device device);
  static Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = Device::cpu);
  static Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = Device::cpu);
  // On the device of x, and of its dtype unless another is given: what operations make their results with.
  static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
  static Tensor empty_like(const Tensor& x, const Shape& shape) { return empty(shape, x.dtype(), x.device()); }
  static Tensor empty_like(const Tensor& x, const Shape& shape, Dtype dtype) { return empty(shape, dtype, x.device()); }
  static Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }
  static Tensor zeros_like(const Tensor& x, const Shape& shape) { return zeros(shape, x.dtype(), x.device()); }
  static Tensor full_like(const Tensor& x, const Shape& shape, double value) {
    return full(shape, value, x.dtype(), x.device());
  }
  // The numbers are converted to `dtype`; their count must be shape.numel().
  static Tensor from(const Shape& shape, std::span<const double> values, Dtype dtype = Dtype::f32);
  static Tensor from(const Shape& shape, std::initializer_list<double> values, Dtype dtype = Dtype::f32);
  static Tensor from(const Shape& shape, std::span<const int32_t> values);
  // `count` elements of `buffer` from element `offset`: how flat buffers are divided.
  static Tensor view(std::shared_ptr<Buffer> buffer, int64_t offset, const Shape& shape, Dtype dtype);

  bool defined() const { return body_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const;
  int64_t size(int axis) const { return shape()[axis]; }
  int64_t numel() const { return shape().numel(); }
  int64_t bytes() const { return numel() * bytes_of(dtype()); }
  Dtype dtype() const;
  Device device() const;

  // The numbers.  T must be the dtype's storage type; on Device::cuda the pointer is a device pointer.  mutable_data
  // counts as a change in place.
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
  double item() const;                         // of a tensor with one element, wherever it lives
  std::vector<double> to_vector() const;       // all elements as doubles, wherever they live
  void copy_from(const Tensor& source) const;  // in place; same shape, any dtype and device; not recorded

  // Layout.  Free of copies, recorded.
  Tensor reshape(const Shape& shape) const;        // same count
  Tensor slice(int64_t begin, int64_t end) const;  // rows [begin, end) of the first axis
  Tensor operator[](int64_t index) const;          // slice(index, index + 1) without the first axis
  // Conversions.  Recorded; the same handle if nothing changes.
  Tensor to(Dtype dtype) const;
  Tensor to(Device device) const;
  Tensor clone() const;  // a copy of the numbers, without history
  // `shape` elements from element `offset` on, without history; nothing is checked.
  Tensor part(int64_t offset, const Shape& shape) const;
  Tensor detach() const;  // the same numbers, without history

  // Differentiation.
  bool requires_grad() const;
  const Tensor& set_requires_grad(bool wanted = true) const;  // of a leaf
  Tensor grad() const;                                        // undefined if none has arrived
  void set_grad(const Tensor& g) const;                       // an undefined tensor forgets it
  // The gradient counts as zero, and the next one to arrive overwrites it: no memory is touched.
  void zero_grad() const;
  bool grad_is_stale() const;
  void backward() const;  // of a tensor with one element

  const std::shared_ptr<TensorBody>& body() const { return body_; }
  explicit Tensor(std::shared_ptr<TensorBody> body) : body_(std::move(body)) {}

 private:
  const void* raw(Dtype dtype) const;
  void* mutable_raw(Dtype dtype) const;
  std::shared_ptr<TensorBody> body_;
};

struct TensorBody {
  std::shared_ptr<Buffer> buffer;
  int64_t offset = 0;  // in bytes
  Shape shape;
  Dtype dtype = Dtype::f32;
  bool requires_grad = false;
  bool stale = false;             // the gradient counts as zero, whatever its memory holds
  bool gradient_at_home = false;  // the gradient has a fixed place (in a flat buffer) and is written there
  Edge edge;                      // of a recorded result: its call
  Tensor gradient;                // of a leaf
};

std::ostream& operator<<(std::ostream& out, const Tensor& x);  // shape, dtype and the numbers (the outer ones of many)

// Errors that name the operation if two operands differ in dtype or device.
void check_same_kind(const char* operation, const Tensor& a, const Tensor& b);

}  // namespace orrery
