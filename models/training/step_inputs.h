// What a step reads, where it lies on the device, and with settings.graph the step's recording.  A recorded step reads
// the same memory at each replay, so each set of shapes that batches have gets memory and a recording of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/tensor/staging.h"
#include "models/tasks/base/task.h"

namespace orrery::models {

// What fraction of its step each micro-batch is: the means over a step add them up by it.
class StepFractions {
 public:
  StepFractions(int64_t micro_batches, Dtype dtype, Device device)
      : of_targets_(Tensor::zeros(Shape{micro_batches}, dtype, device)) {}
  void send(const std::vector<BatchCounts>& micro_batches);  // queues them for the device
  const BatchCounts& step() const { return step_; }          // of all micro-batches
  Tensor of_targets(int64_t micro_batch) const { return of_targets_.tensor()[micro_batch]; }  // (), on the device
  double of_units(int64_t micro_batch) const { return of_units_[static_cast<size_t>(micro_batch)]; }

 private:
  HostToDevice of_targets_;
  std::vector<double> of_units_;
  BatchCounts step_;
};

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
