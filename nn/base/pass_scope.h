// The pass in which hooks (engine/autograd/hooks.h) see a value.
#pragma once

#include "nn/base/module.h"

namespace orrery::nn {

// While it lives, `pass` is the current one of this thread. Modules make one for each call.
class PassScope {
 public:
  explicit PassScope(const ForwardPass& pass);
  ~PassScope();
  PassScope(const PassScope&) = delete;
  static const ForwardPass* current();  // null outside of a pass

 private:
  const ForwardPass* outer_;
};

}  // namespace orrery::nn
