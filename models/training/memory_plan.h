// What a run will hold in memory and how long its steps will take, found before anything of its size is allocated, and
// the refusal if it cannot fit.
//
// Parameters are counted exactly: the model is built with one layer and with two, on memory that nothing touches, and
// every further layer is like the second.  Moments, activations and time are measured: these small models do one step
// of few tokens, and its peaks and seconds are drawn out to all layers, sequences and tokens.  So whatever is
// registered is reckoned, plug-ins too.  Learned spans count at their longest, which they may reach: a run that begins
// with short ones holds less at first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/settings.h"

namespace orrery::models {

struct MemoryPlan {
  int64_t parameters = 0;  // elements
  int64_t weights = 0;     // bytes, of the masters of a bf16 model too
  int64_t gradients = 0;
  int64_t moments = 0;      // of the optimizer
  int64_t guard = 0;        // with nan_guard: copies of weights and moments, to undo an update
  int64_t probe = 0;        // with probe: the model once more, with its gradients, before the first step
  int64_t activations = 0;  // the most that a step or a validation holds beside the above
  int64_t data = 0;         // what is learned, and its batches
  int64_t program = 0;      // what the process had before the run made anything; 0 on a GPU
  int64_t free = 0;         // what the device has for all this
  double seconds_of_step = 0;  // about; 0: not known, for it is measured on the CPU and the run is on a GPU
  int64_t total() const;
  std::vector<std::pair<std::string, int64_t>> kinds() const;  // names and bytes, without those that are 0
};

// For data that are in memory already.  Errors: a run that cannot fit, settings that do not go together, a weight for a
// loss that the model lacks.  Nothing is
// left allocated, and the peak of memory begins anew.
MemoryPlan plan_memory(const TrainSettings& settings, const Task& task);

// An Error if so many steps would take more than ten years.
void check_duration(int64_t steps, double seconds_of_step);

// The parameters of a model, without making it; nothing if there are more than `most`.  Errors: settings that do not go
// together.
std::optional<int64_t> count_parameters(const TrainSettings& settings, int64_t most);

}  // namespace orrery::models
