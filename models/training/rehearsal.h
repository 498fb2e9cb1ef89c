// A rehearsal: a model with the run's settings and all its layers does once, on dummy values, each
// thing that the run repeats. Memory and time are measured.
#pragma once

#include <memory>

#include "models/tasks/base/task.h"
#include "models/training/settings.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

struct BatchSizes {  // sequences or images per micro-batch and per validation batch; tokens of each sequence
  int64_t training, validation, tokens;
};

struct Cost {
  double seconds = 0, flops = 0;  // flops: of matrix products and attention
};

// Peak bytes of each phase of a run in addition to weights, gradients and optimizer state, and the
// cost of a forward and a backward pass.
struct Peaks {
  double step = 0, validation = 0, metrics = 0, signal_propagation = 0;
  double stream_state = 0;  // stream state of all micro-batches between steps, in addition to each other peak
  double seconds = 0, flops = 0;
};

class Rehearsal {
 public:
  // `settings` and `task` must outlive the object.
  Rehearsal(const TrainSettings& settings, const Task& task);
  int64_t optimizer_state_bytes() const;
  Peaks run(const BatchSizes& sizes);  // each phase once
  Cost cost_of_update();               // of clearing the gradients and the optimizer's step

 private:
  Tensor loss(std::span<const Tensor> batch, nn::ForwardPass& pass);
  void train_step(std::span<const Tensor> batch, const nn::Cache& stream_state);
  void train_guarded(std::span<const Tensor> batch, const nn::Cache& stream_state);
  void log_metrics(std::span<const Tensor> batch, const nn::Cache& stream_state);
  nn::Cache stream_state_of(int64_t streams);

  const TrainSettings& s_;
  const Task& task_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::FlatParameters> parameters_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

}  // namespace orrery::models
