// Reference mode: while a SimpleOperations object lives, operations with a fused path use the
// simple operations of their formula instead.
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
