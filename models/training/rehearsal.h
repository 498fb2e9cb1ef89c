// A rehearsal: a model of the run's settings, with as many layers, does once what the run will do again and again, on
// numbers that mean nothing, and the memory and the time that it takes are measured.
#pragma once

#include <memory>

#include "models/tasks/base/task.h"
#include "models/training/settings.h"
#include "nn/optimizers/base/optimizer.h"

namespace orrery::models {

struct Sample {  // sequences, or images, of a micro-batch and of a validation, and the tokens of each
  int64_t training, validation, tokens;
};

// The most bytes that each part of a run holds in addition to weights, gradients and moments, and the seconds of a
// forward and a backward pass.
struct Peaks {
  double step = 0, validation = 0, figures = 0, probe = 0;
  double carried = 0;  // what the streams of all micro-batches keep from step to step, beside each of the others
  double seconds = 0;
};

class Rehearsal {
 public:
  // `settings` and `task` must outlive it.
  Rehearsal(const TrainSettings& settings, const Task& task);
  int64_t bytes_of_moments() const;
  Peaks run(const Sample& sample);
  double seconds_of_update();

 private:
  Tensor loss(std::span<const Tensor> batch, nn::Pass& pass);
  void learn(std::span<const Tensor> batch, const nn::Cache& carried);
  void learn_guarded(std::span<const Tensor> batch, const nn::Cache& carried);
  void show_figures(std::span<const Tensor> batch, const nn::Cache& carried);
  nn::Cache carried_by(int64_t streams);

  const TrainSettings& s_;
  const Task& task_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::FlatParameters> parameters_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

}  // namespace orrery::models
