// What a step reads, where it lies on the device, and with settings.graph the step's recording.  A recorded step reads
// the same memory at each replay, so each set of shapes that batches have gets memory and a recording of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/tensor/staging.h"

namespace orrery::models {

struct StepInputs {
  std::vector<std::vector<HostToDevice>> batches;  // of each micro-batch, the task's tensors
  bool recordable = false;
  std::unique_ptr<Graph> recorded = {};
  double flops = 0;  // of the last step of these that was not replayed
};

class StepInputsByShape {
 public:
  StepInputsByShape(Device device, bool recorded) : device_(device), recorded_(recorded) {}
  // Queues a step's batches for the device.  What is not recorded shares one set of inputs, whatever its shapes.
  StepInputs& send(const std::vector<std::vector<Tensor>>& batches);
  void record(StepInputs& inputs, const std::function<void()>& step);  // all recordings share the memory of the first

 private:
  StepInputs& of(const std::vector<std::vector<Tensor>>& batches);
  Device device_;
  bool recorded_;
  std::map<std::vector<int64_t>, StepInputs> by_sizes_;
  const Graph* first_ = nullptr;
};

}  // namespace orrery::models
