#include "models/training/step_inputs.h"

namespace orrery::models {
namespace {

// Limits the captured shapes: a CUDA graph of a step takes about 1 MB of the GPU at any batch size.
constexpr size_t most_recordings = 512;

double fraction_of(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
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
  if (recorded_) {
    for (const auto& batch : batches)
      for (const Tensor& x : batch) sizes.insert(sizes.end(), x.shape().begin(), x.shape().end());
    if (!by_sizes_.contains(sizes) && by_sizes_.size() >= most_recordings) sizes.clear();
  }
  StepInputs& inputs = by_sizes_[sizes];
  inputs.recordable = !sizes.empty();
  return inputs;
}

StepInputs& StepInputsByShape::send(const std::vector<std::vector<Tensor>>& batches) {
  StepInputs& inputs = of(batches);
  inputs.batches.resize(batches.size());
  for (size_t micro = 0; micro < batches.size(); ++micro) {
    std::vector<HostToDevice>& places = inputs.batches[micro];
    for (size_t i = 0; i < batches[micro].size(); ++i) {
      const Tensor& x = batches[micro][i];
      const auto place = [&] { return HostToDevice(Tensor::zeros(x.shape(), x.dtype(), device_)); };
      if (i == places.size())
        places.push_back(place());
      else if (places[i].tensor().shape() != x.shape())
        places[i] = place();
      places[i].send(x);
    }
  }
  return inputs;
}

void StepInputsByShape::record(StepInputs& inputs, const std::function<void()>& step) {
  inputs.recorded = std::make_unique<Graph>(step, first_);
  if (!first_) first_ = inputs.recorded.get();
}

}  // namespace orrery::models
