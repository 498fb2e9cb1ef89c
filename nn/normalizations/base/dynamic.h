// Layer shared by DyT, Derf and dynamic(F):  y = F(alpha x + shift) weight + bias, (..., width). The
// learned parameters of F are one set for the layer.
#pragma once

#include <optional>

#include "nn/diagnostics/predictions.h"
#include "nn/formulas/dynamic_role.h"
#include "nn/formulas/pointwise_function.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {

class DynamicNormalization : public Module {
 public:
  struct Form {
    Activation activation;
    double alpha;
    bool learn_alpha = true;
    std::optional<double> shift = {};  // initial value, learned; absent: always 0
    bool affine = true;                // a weight per channel, and a bias if options.bias
  };
  DynamicNormalization(const Form& form, const NormalizationOptions& options);
  Tensor forward(const Tensor& x, ForwardPass& pass) override;
  double saturation(const Tensor& x) const;  // fraction of x with |alpha x| > 2
  void visit(Visitor& v) override;
  std::vector<Prediction> predicted(const InputStats& stats) const;

 private:
  Tensor alpha(const Tensor& x) const {
    return alpha_.value ? alpha_.value : Tensor::full_like(x, Shape{1}, fixed_alpha_);
  }
  PointwiseFunction activation_;
  double fixed_alpha_;
  Parameter alpha_, shift_, weight_, bias_;  // undefined if absent
};

}  // namespace orrery::nn
