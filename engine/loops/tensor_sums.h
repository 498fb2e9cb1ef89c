// Sums of two tensors of one shape, dtype and device, which nothing records: those that gradients are.
#pragma once

#include "engine/tensor/tensor.h"

namespace orrery {

Tensor sum_of(const Tensor& a, const Tensor& b);
void add_in_place(const Tensor& to, const Tensor& x);

}  // namespace orrery
