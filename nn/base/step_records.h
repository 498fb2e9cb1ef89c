// Records of a step's forward passes for after_step, such as batch normalization's statistics. Each
// of several ranks has the records of its micro-batches, and gets those of the others before
// after_step (models/training/trainer_ranks.cpp).
#pragma once

#include <vector>

#include "nn/base/module.h"

namespace orrery::nn {

struct StepRecord {
  DeviceRandomKey rng;          // ForwardPass::rng of the micro-batch
  std::vector<Tensor> tensors;  // of the same shapes in each record
};
class KeepsStepRecords {  // a second base of such a module
 public:
  virtual std::vector<StepRecord>& step_records() = 0;  // in the order of the micro-batches

 protected:
  ~KeepsStepRecords() = default;
};
std::vector<std::vector<StepRecord>*> step_records_of(Module& root);  // of its modules, in the order of visit

}  // namespace orrery::nn
