// Sublayers of a residual block: attention or feed-forward.
#pragma once

#include "nn/base/module.h"

namespace orrery::nn {

// A module that can add a residual while its output is in the cache.
class Sublayer : public Module {
 public:
  // Returns forward(x) + residual, or forward(x) if the residual is undefined.
  virtual Tensor forward_onto(const Tensor& x, const Tensor& residual, Pass& pass) = 0;
  // Returns true if forward_onto returns the residual for any x; a block then does not compute x.
  virtual bool adds_nothing() const { return false; }
  Tensor forward(const Tensor& x, Pass& pass) final { return forward_onto(x, {}, pass); }
  // Runs forward_onto with hooks on input and output, and adds the path to error messages as Module
  // does. If a hook uses the output, the residual is added separately.
  Tensor onto(const Tensor& x, const Tensor& residual, Pass& pass);
};

}  // namespace orrery::nn
