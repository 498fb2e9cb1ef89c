// The gradient of a parameter that an operation sums over rows, in the arithmetic type (f32 for
// bf16): in the parameter's gradient buffer if that has this type, else in a tensor that is rounded.
//
//   const ParameterGradient dw(saved, 1, weight);
//   sum_rows(..., out_sums(dw.sum), ...);
//   d[1] = dw.done();
#pragma once

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_sums.h"

namespace orrery {

class ParameterGradient {
 public:
  // `parameter` is input `input`, or a tensor like it. If it requires no gradient, `sum` is scratch.
  ParameterGradient(const Saved& saved, int input, const Tensor& parameter)
      : is_needed_(saved.needs(input)),
        dtype_(parameter.dtype()),
        buffer_(saved.gradient_buffer(input, parameter.shape(), dtype_ == Dtype::f64 ? Dtype::f64 : Dtype::f32,
                                      parameter.device())),
        sum(buffer_.accumulate ? Tensor::empty_like(buffer_.gradient) : buffer_.gradient) {}

  // For each_row_with_sums; then done_in_place() returns the gradient.
  SumTensor in_place() const {
    return {is_needed_ ? buffer_.gradient : Tensor(), buffer_.accumulate, buffer_.is_leaf_buffer};
  }
  Tensor done_in_place() const { return is_needed_ ? buffer_.as(dtype_) : Tensor(); }
  // Returns the gradient for backward; undefined if the input requires none.
  Tensor done() const {
    if (!is_needed_) return {};
    if (buffer_.accumulate) add_in_place(buffer_.gradient, sum);
    return buffer_.as(dtype_);
  }

 private:
  bool is_needed_;
  Dtype dtype_;
  Saved::GradientBuffer buffer_;

 public:
  const Tensor sum;  // uninitialized; the operation writes all of it before done()
};

}  // namespace orrery
