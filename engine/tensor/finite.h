// Checks for numbers that are not finite, and statistics of a tensor's numbers.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "engine/tensor/tensor.h"

namespace orrery {

// Returns true if x has no NaN or infinity; true for i32. Copies x from a GPU to the host.
bool all_finite(const Tensor& x);

struct TensorStats {  // statistics of a tensor
  Shape shape;
  Dtype dtype = Dtype::f32;
  int64_t nan = 0, plus_infinity = 0, minus_infinity = 0;  // counts
  int64_t first = -1;                                      // index of the first of these in row-major order; -1: none
  double smallest = 0, largest = 0;                        // range of the finite numbers; NaN if there are none
  int64_t non_finite() const { return nan + plus_infinity + minus_infinity; }
  bool operator==(const TensorStats& other) const;  // NaN equals NaN
};
TensorStats stats_of(const Tensor& x);

// Returns the indices of element `element` as text: (0, 3, 1).
std::string index_text(const Shape& shape, int64_t element);
// "f32 (2, 8) has 3 NaN, 1 inf and 0 -inf, the first at (0, 4); finite values: 12, between -1.5 and 9"
std::ostream& operator<<(std::ostream& out, const TensorStats& stats);

}  // namespace orrery
