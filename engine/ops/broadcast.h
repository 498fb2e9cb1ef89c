// Broadcasting of shapes, and folding of axes for the broadcasting map.
#pragma once

#include <array>

#include "engine/loops/loops.h"
#include "engine/tensor/tensor.h"

namespace orrery {

// Returns the shape that a and b broadcast to; throws with the operation's name if they do not.
Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b);

// Sums dy over the axes that broadcasting repeated, back to `shape`.
Tensor sum_to(const Tensor& dy, const Shape& shape);

// Merges adjacent axes if one stride walks through both in every input.
template <int N>
Broadcast<N> fold_axes(const Shape& out, const std::array<const Shape*, N>& in) {
  Broadcast<N> plan;
  int64_t step[N];
  for (int64_t& s : step) s = 1;
  int64_t size[6], stride[N][6];
  int rank = 0;  // axes from the last to the first
  for (int axis = out.rank() - 1; axis >= 0; --axis) {
    int64_t current[N];
    for (int k = 0; k < N; ++k) {
      const int own = axis - (out.rank() - in[k]->rank());
      const int64_t n = own >= 0 ? (*in[k])[own] : 1;
      current[k] = n == 1 ? 0 : step[k];
      step[k] *= n;
    }
    if (out[axis] == 1) continue;
    bool joins = rank > 0;
    for (int k = 0; k < N && joins; ++k) joins = current[k] == stride[k][rank - 1] * size[rank - 1];
    if (joins) {
      size[rank - 1] *= out[axis];
      continue;
    }
    size[rank] = out[axis];
    for (int k = 0; k < N; ++k) stride[k][rank] = current[k];
    ++rank;
  }
  plan.rank = rank;
  for (int a = 0; a < rank; ++a) {
    plan.size[a] = size[rank - 1 - a];
    for (int k = 0; k < N; ++k) plan.stride[k][a] = stride[k][rank - 1 - a];
  }
  return plan;
}

}  // namespace orrery
