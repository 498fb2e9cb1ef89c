// The plan of a run's memory and time, made before anything of the run's size is allocated, and the refusal of a run
// that cannot fit.
//
// Parameters are counted exactly: the model is built with one layer and with two, on memory that nothing touches, and
// every further layer is like the second.  Moments, activations and time are measured: these small models do one step
// of few tokens, and its peaks and seconds are extrapolated to all layers, sequences and tokens.  So everything that is
// registered is counted, plug-ins too.  An extrapolation may be wrong by a factor.  Where that decides whether a run on
// the CPU fits, the whole run's model does a step, a validation, figures and a probe first, under a limit that is what
// is free (models/training/rehearsal.h).  Learned spans count at their longest, which they may reach: a run that begins
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
  int64_t probe = 0;        // what a probe holds in addition to all that a step does
  int64_t activations = 0;  // the most that a step, a validation, figures or loading hold in addition to the above
  int64_t data = 0;         // the training data in memory, and batches
  int64_t program = 0;      // the process without tensors and data: libraries, heap, threads; 0 on a GPU
  int64_t free = 0;         // what the device has for all this, with what the process has already
  double seconds_of_step = 0;  // about; 0: not known, for it is measured on the CPU and the run is on a GPU
  int64_t total() const;
  std::vector<std::pair<std::string, int64_t>> kinds() const;  // names and bytes, without those that are 0
};

// While it lives, tensors on the host get what is free now and no more: an allocation beyond is an Error, and blocks
// that were kept for reuse are given back before.
class HostMemoryLimit {
 public:
  HostMemoryLimit();
  ~HostMemoryLimit();
  HostMemoryLimit(const HostMemoryLimit&) = delete;
  bool reached() const;  // whether an allocation was refused

 private:
  int64_t before_, refused_;
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
