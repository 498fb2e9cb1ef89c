// The inputs of a step on the device and, with settings.cuda_graph, its CUDA graph. A replay reads
// the memory of the capture, so each set of batch shapes gets its own memory and graph.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/tensor/staging.h"
#include "models/tasks/base/task.h"

namespace orrery::models {

// For each micro-batch its fractions of the step's targets and of its units (BatchCounts): the
// weights of the micro-batch in means over the step.
class StepFractions {
 public:
  StepFractions(int64_t micro_batches, Dtype dtype, Device device)
      : of_targets_(Tensor::zeros(Shape{micro_batches}, dtype, device)) {}
  void send(const std::vector<BatchCounts>& micro_batches);  // queues a copy to the device
  const BatchCounts& step() const { return step_; }          // sums over all micro-batches
  Tensor of_targets(int64_t micro_batch) const { return of_targets_.tensor()[micro_batch]; }  // (), on the device
  double of_units(int64_t micro_batch) const { return of_units_[static_cast<size_t>(micro_batch)]; }

 private:
  HostToDevice of_targets_;
  std::vector<double> of_units_;
  BatchCounts step_;
};

struct StepInputs {
  std::vector<std::vector<HostToDevice>> batches;  // the task's tensors, by micro-batch
  bool capturable = false;
  std::unique_ptr<Graph> graph = {};
  double flops = 0;  // of the last step with these inputs that was not replayed
};

class StepInputsByShape {
 public:
  StepInputsByShape(Device device, bool graph) : device_(device), use_graphs_(graph) {}
  // Queues a step's batches for the device. Batches that are not captured share one set of inputs.
  StepInputs& send(const std::vector<std::vector<Tensor>>& batches);
  void capture(StepInputs& inputs, const std::function<void()>& step);  // all graphs share the memory of the first

 private:
  StepInputs& of(const std::vector<std::vector<Tensor>>& batches);
  Device device_;
  bool use_graphs_;
  std::map<std::vector<int64_t>, StepInputs> by_sizes_;
  const Graph* first_ = nullptr;
};

}  // namespace orrery::models
