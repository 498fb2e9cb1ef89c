// Sums of two tensors of equal shape, dtype and device, without recording: for gradients.
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

}  // namespace orrery
