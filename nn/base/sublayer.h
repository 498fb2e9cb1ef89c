// What stands in a residual block: attention or feed-forward.
#pragma once

#include "nn/base/module.h"

namespace orrery::nn {

// A module that can add a residual while its result is in the cache.
class Sublayer : public Module {
 public:
  // forward(x) + residual; an undefined residual is left out.
  virtual Tensor forward_onto(const Tensor& x, const Tensor& residual, Pass& pass) = 0;
  // Whether forward_onto gives the residual back, whatever x is: a block then spares what leads to x.
  virtual bool adds_nothing() const { return false; }
  Tensor forward(const Tensor& x, Pass& pass) final { return forward_onto(x, {}, pass); }
  // forward_onto, with this module's path put before the message of an error; shows input and output to hooks.  Who
  // asks for the output has it made alone, and the residual added by itself.
  Tensor onto(const Tensor& x, const Tensor& residual, Pass& pass);
};

}  // namespace orrery::nn
