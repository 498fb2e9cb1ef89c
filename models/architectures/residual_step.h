// A step of a residual stream: a sublayer S with output dropout, and its normalization N.
//   pre-norm   y = b x + a S(N x) / d         Xiong et al. 2020, arXiv:2002.04745
//   post-norm  y = N(b x + a S(x) / d)        Vaswani et al. 2017, arXiv:1706.03762
// a (gain), d (divisor) and b (residual) are 1, another number, or learned.
#pragma once

#include <memory>
#include <string>

#include "engine/settings/config.h"
#include "nn/base/sublayer.h"
#include "nn/layers/dropout.h"

namespace orrery::models {

// A number, fixed or learned. A fixed 1 costs nothing.
class LearnableScale {
 public:
  explicit LearnableScale(const LearnableNumber& number);
  bool is_one() const { return !parameter.value && fixed_ == 1; }
  Tensor times(const Tensor& x) const;   // x n
  Tensor divide(const Tensor& x) const;  // x / n
  nn::Parameter parameter;               // undefined if fixed

 private:
  double fixed_;
};

struct ResidualOptions {
  double dropout = 0;
  bool post = false;
  LearnableNumber gain{1}, divisor{1}, residual{1};
};

class ResidualStep final : public nn::Module {
 public:
  // `norm` may be null if forward is not called.
  ResidualStep(std::unique_ptr<nn::Module> norm, std::unique_ptr<nn::Sublayer> layer, const ResidualOptions& options);
  Tensor forward(const Tensor& before, nn::ForwardPass& pass) override;

  // The parts of forward, for steps that share a normalization.
  Tensor stream(const Tensor& x) const;  // x, passed through its hook
  Tensor normalize(const Tensor& x, nn::ForwardPass& pass) const { return (*norm_)(x, pass); }
  Tensor add(const Tensor& x, const Tensor& input, nn::ForwardPass& pass);  // b x + a S(input) / d

  // Returns the output for this value of the hook `residual`.
  Tensor after_residual(const Tensor& state, nn::ForwardPass& pass) const {
    return post_ ? normalize(state, pass) : state;
  }
  void visit(nn::Visitor& v) override { visit(v, "norm", "layer", ""); }
  // `others` is the prefix of the remaining names: dropout, gain, divisor, residual.
  void visit(nn::Visitor& v, const std::string& norm, const std::string& layer, const std::string& others);

 private:
  std::unique_ptr<nn::Module> norm_;
  std::unique_ptr<nn::Sublayer> layer_;
  double p_;
  nn::Dropout dropout_;
  bool post_;
  LearnableScale gain_, divisor_, residual_;
};

}  // namespace orrery::models
