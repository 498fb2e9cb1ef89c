// Finds the normalizations of a model.
#pragma once

#include <string>
#include <vector>

#include "nn/base/module.h"

namespace orrery::models {

struct NormalizationModule {
  std::string path, kind;  // "blocks.0.attention_norm", "layer"
  nn::Module* module;
};
// Returns the modules of all registered normalizations, also of plug-ins, except none, as visited.
std::vector<NormalizationModule> normalizations_of(nn::Module& model);

// A normalization N with its divisors held at those of a state x: an affine map of the states around it,
//   N(x) = slope z(x) + offset,   z(x): x without the means that N subtracts,   offset = N(0)
//   slope_c = (N_c(x) - N_c(0)) / z_c(x), by position and channel
// layer, group, rms  weight / deviation: the divisor is fixed, as in TransformerLens's apply_ln_to_stack
// batch              weight / running deviation: N itself in evaluation, for all states
// dynamic, dyt, derf weight (F(alpha x + shift) - F(shift)) / x: the chord from 0 to x. The tangent, F', would be
//                    first-order, and its products with parts of x would not add up to N(x) - N(0)
// another            the chord; exact in the sum, like the others
class FixedNormalization {
 public:
  FixedNormalization(nn::Module& module, const Tensor& x);
  Tensor linear_part(const Tensor& x) const;  // slope z(x), with gradient
  const Tensor& offset() const { return offset_; }

 private:
  Tensor without_means(const Tensor& x) const;
  nn::Module& module_;
  Tensor slope_, offset_;
};

}  // namespace orrery::models
