// The gradient of a parameter that an operation sums over rows: in the arithmetic type, f32 for bf16, and where the
// parameter gathers it, if that is of this type; rounded only if it must be handed on.
//
//   const ParameterGradient dw(saved, 1, weight);
//   sum_rows(..., to_sums(dw.sum), ...);
//   d[1] = dw.done();
#pragma once

#include "engine/autograd/autograd.h"
#include "engine/loops/tensor_sums.h"

namespace orrery {

class ParameterGradient {
 public:
  // Of input `input`, which is `parameter`; it may be unwanted, or undefined, if `like` says the form of its sum.
  ParameterGradient(const Saved& saved, int input, const Tensor& parameter)
      : wanted_(saved.needs(input)),
        dtype_(parameter.dtype()),
        place_(
            saved.place(input, parameter.shape(), dtype_ == Dtype::f64 ? Dtype::f64 : Dtype::f32, parameter.device())),
        sum(place_.accumulate ? Tensor::empty_like(place_.gradient) : place_.gradient) {}

  // What backward returns; undefined if unused.
  Tensor done() const {
    if (!wanted_) return {};
    if (place_.accumulate) add_in_place(place_.gradient, sum);
    return place_.as(dtype_);
  }

 private:
  bool wanted_;
  Dtype dtype_;
  Saved::Place place_;

 public:
  const Tensor sum;  // to be overwritten
};

}  // namespace orrery
