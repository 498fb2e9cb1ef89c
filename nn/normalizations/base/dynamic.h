// What DyT, Derf and dynamic(F) share: the layer  y = F(alpha x + shift) weight + bias.
#pragma once

#include <array>
#include <optional>

#include "nn/activations/base/activation.h"
#include "nn/diagnostics/predictions.h"
#include "nn/normalizations/base/normalization.h"

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

class DynamicNormalization : public Module {
 public:
  struct Form {
    Activation activation;
    double alpha;
    bool learn_alpha = true;
    std::optional<double> shift = {};  // learned, from this value; absent: zero for good
    bool affine = true;                // a weight for each channel, and a bias if the options have one
  };
  DynamicNormalization(const Form& form, const NormalizationOptions& options);
  Tensor forward(const Tensor& x, Pass& pass) override;
  double saturation(const Tensor& x) const;  // the share of x with |alpha x| > 2
  void visit(Visitor& v) override;
  std::vector<Prediction> predicted(const Given& given) const;

 private:
  Tensor alpha(const Tensor& x) const {
    return alpha_.value ? alpha_.value : Tensor::full_like(x, Shape{1}, fixed_alpha_);
  }
  Activation activation_;
  double fixed_alpha_;
  Parameter alpha_, shift_, weight_, bias_;  // undefined where absent
};

}  // namespace orrery::nn
