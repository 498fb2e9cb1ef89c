// The plan of a run's memory and time, made before anything of the run's size is allocated. Runs
// that cannot fit are refused.
//
// Parameters are counted exactly: the model is built with one layer and with two, in memory that is
// never touched, and every further layer equals the second. The plan measures optimizer state,
// activations and time: both small models run one short step, and the plan extrapolates peak memory
// and time to all layers, sequences and tokens. This covers every registered component, plug-ins
// included. An extrapolation may be wrong by a factor. If that decides whether a run on the CPU
// fits, the full model first runs a step, a validation, metrics and signal propagation, limited to
// the free memory (models/training/rehearsal.h). Learned spans count at their maximum; a run that
// begins with short spans holds less at first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/distributed/ranks.h"
#include "models/tasks/base/task.h"
#include "models/training/settings.h"

namespace orrery::models {

struct MemoryPlan {
  int64_t parameters = 0;  // elements
  int64_t weights = 0;     // bytes, with the f32 master weights of a bf16 model
  int64_t gradients = 0;
  int64_t gradient_sums = 0;       // sums of parts of a step, with gradient_parts above 1
  int64_t optimizer_state = 0;     // bytes, as all that follow
  int64_t masks = 0;               // tables of named masks
  int64_t guard = 0;               // with nan_guard: copies of weights and optimizer state, to undo an update
  int64_t signal_propagation = 0;  // its memory in addition to that of a step
  int64_t activations = 0;     // the most that a step, a validation, metrics or loading hold in addition to the above
  bool by_validation = false;  // a validation holds the most activations
  int64_t data = 0;            // the training data in memory, and batches
  int64_t program = 0;         // the process without tensors and data: libraries, heap, threads; 0 on a GPU
  int64_t free = 0;            // what the device has for all this, plus what the process holds already
  double seconds_of_step = 0;  // approximate, without exchange; 0: unknown, as on a GPU: it is measured on the CPU
  double flops_of_step = 0;    // of matrix products and attention, as flops_counted counts them; 0: unknown
  int64_t total() const;
  std::vector<std::pair<std::string, int64_t>> kinds() const;  // names and bytes, without zeros
};

// A run that does not fit, with its plan as far as it was made.
class MemoryError : public Error {
 public:
  MemoryError(const std::string& message, const MemoryPlan& of_run) : Error(message), plan(of_run) {}
  MemoryPlan plan;
};
class DurationError : public Error {  // a run that would take more than ten years
 public:
  using Error::Error;
};

// A scope that limits host tensors to the memory that is free at its start. An allocation beyond it
// first releases cached blocks, then throws.
class HostMemoryLimit {
 public:
  HostMemoryLimit();
  ~HostMemoryLimit();
  HostMemoryLimit(const HostMemoryLimit&) = delete;
  bool reached() const;  // true if an allocation was refused

 private:
  int64_t before_, refused_;
};

// Plans a run whose data are in memory already; with several ranks, for this one. Throws MemoryError
// if the run cannot fit, or Error if settings conflict or the model lacks a loss that has a weight.
// Leaves nothing allocated and resets the peak of memory.
MemoryPlan plan_memory(const TrainSettings& settings, const Task& task, const Ranks& ranks = Ranks());

// Throws DurationError if the steps would take more than ten years.
void check_duration(int64_t steps, double seconds_of_step);

int64_t layers_of(const TrainSettings& settings);  // 1 for a model without the setting `layers`
// Leaves a model without the setting `layers` as it is.
TrainSettings settings_with_layers(TrainSettings settings, int64_t layers);

// Returns the number of parameters without allocating the model; nothing if there are more than
// `limit`. Throws if settings conflict.
std::optional<int64_t> count_parameters(const TrainSettings& settings, int64_t limit);

}  // namespace orrery::models
