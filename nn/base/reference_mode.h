// Reference mode: while a ReferenceMode object lives, operations with a fused path use the
// simple operations of their formula instead.
#pragma once

namespace orrery::nn {

class ReferenceMode {  // for this thread
 public:
  ReferenceMode();
  ~ReferenceMode();
  ReferenceMode(const ReferenceMode&) = delete;
};
bool in_reference_mode();

}  // namespace orrery::nn
