// Who is told of a run: its log and the caller.  What one of them throws, because a disk is full or a terminal is gone,
// is kept: nobody is told any more, and the run ends, but is saved first.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/metrics.h"

namespace orrery::models {

struct Probe;  // models/training/probe.h

struct StepReport {  // after each update
  int64_t step;      // updates done, from 1
  int64_t steps;
  double loss;  // no number if no micro-batch had a target
  double gradient_norm, learning_rate;
  double milliseconds;      // of this step
  std::string unit;         // of the task, such as "tokens"
  double units_per_second;  // of this step; evaluation and checkpoints are not counted
  int64_t memory;           // bytes, the most that tensors have held
  double seconds_left;
  double used;  // part of the machine's peak, from 0 to 1; no number if that is unknown
};

// All optional.  One that throws ends the run: what was learned is saved first, then the exception goes on.
struct TrainingEvents {
  std::function<void(const StepReport&)> step;
  std::function<void(int64_t step, const Validation& validation)> validation;
  std::function<void(const Probe&)> probe;  // with settings.probe: before the first step of all
  std::function<void(const std::string& path)> checkpoint;
  std::function<void(const std::string& sentence)> warning;  // of what is no reason to end the run
  // Asked after each step and within a validation: true ends the run early, with a checkpoint and without validation.
  std::function<bool()> stop;
};

class Audience {
 public:
  Audience(const std::string& folder, int64_t step, const TrainingEvents& events)
      : folder_(folder), metrics_(folder, step), events_(events) {
    warnings(metrics_.warnings());
  }
  void step(const StepReport& report, const std::vector<std::pair<std::string, double>>& row);
  void validation(int64_t step, const Validation& validation);
  void probe(const Probe& probe);
  void checkpoint(const std::string& path);
  void warnings(const std::vector<std::string>& sentences);
  bool wants_end();  // from the first time on: somebody asked for it, or cannot be told
  // Throws what was kept, with where the run is saved.
  void finish(int64_t step, const std::string& checkpoint) const;

 private:
  template <class Tell>
  void attempt(const Tell& tell);
  std::string folder_;
  Metrics metrics_;
  const TrainingEvents& events_;
  bool ends_ = false;
  std::exception_ptr untold_;
};

}  // namespace orrery::models
