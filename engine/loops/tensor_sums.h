// Sums for gradients, without recording: of two tensors of equal shape, dtype and device.
#pragma once

#include "engine/tensor/tensor.h"
#include "engine/types/host_device.h"

namespace orrery {

struct AddValue {
  template <class T>
  HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
Tensor sum_of(const Tensor& a, const Tensor& b);       // a + b
void add_in_place(const Tensor& to, const Tensor& x);  // to += x

// A destination of each_row_with_sums (engine/loops/tensor_loops.h), in Arithmetic<T>.
struct SumTensor {
  Tensor sum;                 // undefined: not needed
  bool accumulate, may_wait;  // as in SumOfRows (engine/loops/loops.h)
};

}  // namespace orrery
