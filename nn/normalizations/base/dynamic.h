// What DyT, Derf and dynamic(F) share: the layer  y = F(alpha x + shift) weight + bias.
#pragma once

#include <optional>

#include "nn/diagnostics/predictions.h"
#include "nn/formulas/activation.h"
#include "nn/formulas/dynamic_role.h"
#include "nn/normalizations/base/normalization.h"

namespace orrery::nn {

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
