// Witnesses: while a SimpleOperations lives, what has a fused path of its own goes by the simple operations that its
// formula is written in.
#pragma once

namespace orrery::nn {

class SimpleOperations {  // for this thread
 public:
  SimpleOperations();
  ~SimpleOperations();
  SimpleOperations(const SimpleOperations&) = delete;
};
bool by_simple_operations();

}  // namespace orrery::nn
