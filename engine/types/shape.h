// The sizes of a dense row-major array: a value of at most six axes and `max_elements` elements.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "engine/types/check.h"
#include "engine/types/sizes.h"

namespace orrery {

class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;  // rank 0: one number
  Shape(std::initializer_list<int64_t> sizes) {
    for (const int64_t size : sizes) append(size);
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return sizes_[static_cast<size_t>(resolve(axis))]; }  // -1 is the last axis
  int64_t numel() const { return numel_; }
  int64_t last() const { return rank_ == 0 ? 1 : sizes_[static_cast<size_t>(rank_ - 1)]; }
  int64_t rows() const { return last() == 0 ? 0 : numel() / last(); }  // product of all axes except the last

  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }
  bool operator==(const Shape& other) const = default;

  void append(int64_t size) {
    check(rank_ < max_rank, "shape: too many axes; at most ", max_rank, " are supported");
    check(size >= 0, "shape: a size is ", size, "; it must be at least 0");
    sizes_[static_cast<size_t>(rank_++)] = size;
    if (__builtin_mul_overflow(numel_, size, &numel_) || numel_ > max_elements)
      fail("shape: ", *this, " has too many elements for any memory; use smaller sizes");
  }
  Shape with(int axis, int64_t size) const {
    const int changed_axis = resolve(axis);
    Shape changed;
    for (int i = 0; i < rank_; ++i) changed.append(i == changed_axis ? size : sizes_[static_cast<size_t>(i)]);
    return changed;
  }
  Shape without(int axis) const {
    const int removed_axis = resolve(axis);
    Shape changed;
    for (int i = 0; i < rank_; ++i)
      if (i != removed_axis) changed.append(sizes_[static_cast<size_t>(i)]);
    return changed;
  }
  // Returns a non-negative axis; throws if the axis does not exist.
  int resolve(int axis) const {
    const int resolved = axis < 0 ? axis + rank_ : axis;
    if (resolved < 0 || resolved >= rank_)
      fail("shape: axis ", axis, " is out of range for ", *this, ", which has axes ", -rank_, " to ", rank_ - 1);
    return resolved;
  }

  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '(';
    for (int i = 0; i < shape.rank_; ++i) out << (i ? ", " : "") << shape.sizes_[static_cast<size_t>(i)];
    return out << ')';
  }

 private:
  std::array<int64_t, max_rank> sizes_ = {};
  int rank_ = 0;
  int64_t numel_ = 1;  // stored: checked when a size is added, and free to read
};

}  // namespace orrery
