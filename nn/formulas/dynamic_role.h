// The role (activation.h) of normalizations by a function,  y = F(alpha x + shift) weight + bias.
#pragma once

#include <array>

#include "engine/tensor/tensor.h"

namespace orrery::nn {

// Kernels of each formula F: x (..., C), alpha and shift (1), weight and bias (C), p (n) or undefined,
// F's learned parameters, in one dtype.
class DynamicNormRole {
 public:
  static constexpr const char* role = "dynamic_norm";
  template <class F>
  class Of;  // dynamic_kernels.h
  virtual void forward(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight,
                       const Tensor& bias, const Tensor& p, const Tensor& y) const = 0;
  // Writes dx, which may share the memory of x, and the sums unless undefined: dweight, dbias, and
  // each channel's terms of dalpha, dshift, (C) each, and dp, (n, C), in the arithmetic type.
  using Sums = std::array<Tensor, 5>;
  virtual void backward(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight,
                        const Tensor& p, const Tensor& dy, const Tensor& dx, const Sums& sums) const = 0;

 protected:
  ~DynamicNormRole() = default;
};

}  // namespace orrery::nn
