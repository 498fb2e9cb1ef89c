// Whether the numbers of a tensor are finite, and what they are if not.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "engine/tensor/tensor.h"

namespace orrery {

// Neither NaN nor infinite; true for i32 and for a tensor without elements.  One on a GPU is copied to the host.
bool all_finite(const Tensor& x);

struct NumberFacts {  // of a tensor
  Shape shape;
  Dtype dtype = Dtype::f32;
  int64_t nan = 0, plus_infinity = 0, minus_infinity = 0;  // how many
  int64_t first = -1;                                      // place of the first of these, row by row; -1: there is none
  double smallest = 0, largest = 0;                        // of the finite ones; NaN if there are none
  int64_t not_finite() const { return nan + plus_infinity + minus_infinity; }
  bool operator==(const NumberFacts& other) const;  // NaN equals NaN
};
NumberFacts facts_of(const Tensor& x);

// Element `element` of that shape by its indices: (0, 3, 1).
std::string place_text(const Shape& shape, int64_t element);
// "f32 (2, 8) holds 3 NaN, 1 inf and 0 -inf, the first at (0, 4); the other 12 lie between -1.5 and 3e+38"
std::ostream& operator<<(std::ostream& out, const NumberFacts& facts);

}  // namespace orrery
