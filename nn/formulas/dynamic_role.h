// What normalizations by a function,  y = F(alpha x + shift) weight + bias,  need of each formula F.
#pragma once

#include <array>

#include "engine/tensor/tensor.h"

namespace orrery::nn {

// What is compiled for every formula F: x (..., C), alpha and shift (1), weight and bias (C), all of one dtype.
class DynamicNormRole {
 public:
  static constexpr const char* role = "dynamic_norm";
  template <class F>
  class Of;  // dynamic_kernels.h
  virtual void forward(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight,
                       const Tensor& bias, const Tensor& y) const = 0;
  // dx, which may have the memory of x, and unless they are undefined the sums: dweight, dbias, and what comes from
  // each channel of dalpha and of dshift, (C) each, in the arithmetic type.
  using Sums = std::array<Tensor, 4>;
  virtual void backward(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight,
                        const Tensor& dy, const Tensor& dx, const Sums& sums) const = 0;

 protected:
  ~DynamicNormRole() = default;
};

}  // namespace orrery::nn
