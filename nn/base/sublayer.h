// Sublayers of a residual block: attention or feed-forward.
#pragma once

#include "nn/base/module.h"

namespace orrery::nn {

// A module that can add a residual in the same pass over its output.
class Sublayer : public Module {
 public:
  // Returns forward(x) + residual, or forward(x) if the residual is undefined.
  virtual Tensor forward_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass) = 0;
  // Returns true if the output is the residual for any x; models then leave out the sublayer's step.
  virtual bool is_noop() const { return false; }
  Tensor forward(const Tensor& x, ForwardPass& pass) final { return forward_with_residual(x, {}, pass); }
  // Runs forward_with_residual with hooks on input and output, and adds the path to error messages
  // as Module does. If a hook uses the output, the residual is added separately.
  Tensor call_with_residual(const Tensor& x, const Tensor& residual, ForwardPass& pass);
};

}  // namespace orrery::nn
