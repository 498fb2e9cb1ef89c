#include "models/training/step_inputs.h"

namespace orrery::models {
namespace {

// Limits the captured shapes: a CUDA graph of a step takes about 1 MB of the GPU at any batch size.
constexpr size_t max_graphs = 512;

double fraction_of(int64_t count, int64_t all) {
  return all > 0 ? static_cast<double>(count) / static_cast<double>(all) : 0;
}

}  // namespace

void StepFractions::send(const std::vector<BatchCounts>& micro_batches) {
  step_ = {};
  for (const BatchCounts& each : micro_batches) step_.targets += each.targets, step_.units += each.units;
  std::vector<double> targets;
  of_units_.clear();
  for (const BatchCounts& each : micro_batches) {
    targets.push_back(fraction_of(each.targets, step_.targets));
    of_units_.push_back(fraction_of(each.units, step_.units));
  }
  const Tensor& to = of_targets_.tensor();
  of_targets_.send(Tensor::from(to.shape(), targets, to.dtype()));
}

StepInputs& StepInputsByShape::of(const std::vector<std::vector<Tensor>>& batches) {
  std::vector<int64_t> sizes;  // empty: inputs of steps that are not captured
  if (use_graphs_) {
    for (const auto& batch : batches)
      for (const Tensor& x : batch) sizes.insert(sizes.end(), x.shape().begin(), x.shape().end());
    if (!by_sizes_.contains(sizes) && by_sizes_.size() >= max_graphs) sizes.clear();
  }
  StepInputs& inputs = by_sizes_[sizes];
  inputs.capturable = !sizes.empty();
  return inputs;
}

StepInputs& StepInputsByShape::send(const std::vector<std::vector<Tensor>>& batches) {
  StepInputs& inputs = of(batches);
  inputs.batches.resize(batches.size());
  for (size_t micro = 0; micro < batches.size(); ++micro) {
    std::vector<HostToDevice>& buffers = inputs.batches[micro];
    for (size_t i = 0; i < batches[micro].size(); ++i) {
      const Tensor& x = batches[micro][i];
      const auto buffer = [&] { return HostToDevice(Tensor::zeros(x.shape(), x.dtype(), device_)); };
      if (i == buffers.size())
        buffers.push_back(buffer());
      else if (buffers[i].tensor().shape() != x.shape())
        buffers[i] = buffer();
      buffers[i].send(x);
    }
  }
  return inputs;
}

void StepInputsByShape::capture(StepInputs& inputs, const std::function<void()>& step) {
  inputs.graph = std::make_unique<Graph>(step, first_);
  if (!first_) first_ = inputs.graph.get();
}

}  // namespace orrery::models
