// One step along a residual stream: a sublayer S and its normalization N, with dropout d of what S says.
//   pre-norm   y = x + d(S(N x))        Xiong et al. 2020, arXiv:2002.04745
//   post-norm  y = N(x + d(S(x)))       Vaswani et al. 2017, arXiv:1706.03762
#pragma once

#include <memory>

#include "nn/base/sublayer.h"
#include "nn/layers/dropout.h"

namespace orrery::models {

class ResidualStep final : public nn::Module {
 public:
  // A sublayer that adds nothing leaves x as it is, without its normalization.
  ResidualStep(std::unique_ptr<nn::Module> norm, std::unique_ptr<nn::Sublayer> layer, double dropout, bool post);
  Tensor forward(const Tensor& before, nn::Pass& pass) override;
  bool adds_nothing() const { return !layer_; }
  // What comes out if this is its state, that of the hook `residual`.
  Tensor after_residual(const Tensor& state, nn::Pass& pass) const { return post_ ? (*norm_)(state, pass) : state; }
  void visit(nn::Visitor& v) override;

 private:
  std::unique_ptr<nn::Module> norm_;
  std::unique_ptr<nn::Sublayer> layer_;
  double p_;
  nn::Dropout dropout_;
  bool post_;
};

}  // namespace orrery::models
