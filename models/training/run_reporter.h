// Reports a run's progress to its log and to the caller's callbacks. If one throws (full disk,
// closed terminal), reporting stops; the run saves a checkpoint, then rethrows.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/metrics_log.h"

namespace orrery::models {

struct SignalPropagation;  // models/training/signal_propagation.h

struct StepReport {  // after each update
  int64_t step;      // updates done, from 1
  int64_t steps;     // of the whole run
  double loss;       // nats; NaN if no micro-batch had a target
  double gradient_norm, learning_rate;
  double milliseconds;      // of this step
  std::string unit;         // of the task, such as "tokens"
  double units_per_second;  // of this step; evaluation and checkpoints are not counted
  int64_t memory;           // bytes; peak of the memory held by tensors
  double seconds_left;
  double mfu;  // fraction of the machine's peak FLOPS (MFU), 0 to 1; NaN if the peak is unknown
  double exchange_seconds;  // with other ranks: of this step, measured in the second one of this process; else 0
};

// Optional callbacks. If one throws, the run saves a checkpoint, then rethrows the exception.
struct TrainingEvents {
  std::function<void(const StepReport&)> step;
  std::function<void(int64_t step, const Validation& validation)> validation;
  std::function<void(const SignalPropagation&)>
      propagation;  // with settings.signal_propagation: once, before the first step
  std::function<void(const std::string& path)> checkpoint;
  std::function<void(const std::string& message)> warning;  // problems that do not end the run
  // Called after each step and in validations; true ends the run early, with a checkpoint.
  std::function<bool()> stop;
};

// Returns the metrics of a validation by their names in metrics.jsonl.
std::vector<std::pair<std::string, double>> log_row(const Validation& validation);

class RunReporter {
 public:
  // logs: whether this process writes the log, which one of several ranks does.
  RunReporter(const std::string& folder, int64_t step, const TrainingEvents& events, bool logs)
      : folder_(folder), events_(events) {
    if (!logs) return;
    metrics_.emplace(folder, step);
    warnings(metrics_->warnings());
  }
  // Each writes to the log, if it has a row for it, and calls its callback.
  void step(const StepReport& report, const std::vector<std::pair<std::string, double>>& row);
  void validation(int64_t step, const Validation& validation);
  void propagation(const SignalPropagation& propagation);
  void checkpoint(const std::string& path);
  void warnings(const std::vector<std::string>& messages);
  bool should_stop();  // true from the first time that `stop` returns true or a callback throws
  // Rethrows the stored exception; an Error also names the checkpoint with the saved run.
  void finish(int64_t step, const std::string& checkpoint) const;

 private:
  template <class Report>
  void attempt(const Report& report);
  std::string folder_;
  std::optional<MetricsLog> metrics_;
  const TrainingEvents& events_;
  bool stopping_ = false;
  std::exception_ptr pending_exception_;
};

}  // namespace orrery::models
