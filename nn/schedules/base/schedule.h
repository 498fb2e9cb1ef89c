// Learning rate schedules over the steps of a run.
#pragma once

#include <memory>
#include <string>

#include "nn/base/entry.h"

namespace orrery::nn {

struct ScheduleOptions {
  double learning_rate = 1e-3;         // peak
  double min_learning_rate = 1e-4;     // at step `steps`, one after the last step, for decaying schedules
  int64_t warmup_steps = 100;          // steps of warm-up; step `warmup_steps` has the peak
  int64_t steps = 2000;                // steps of the whole run
  std::string warmup_form = "linear";  // or quadratic
};

class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options);
  virtual ~Schedule() = default;
  double learning_rate(int64_t step) const;  // step counts from 0

 protected:
  // Returns the lr after the warm-up. `progress`: 0 at its end, 1 from step `steps` (run end) on.
  virtual double after_warmup(int64_t step, double progress) const = 0;
  const ScheduleOptions options_;
};

using ScheduleEntry = Entry<Schedule, const ScheduleOptions&>;
Registry<ScheduleEntry>& schedules();
// Makes a schedule: "cosine", "warmup_stable_decay(decay_fraction=0.2)".
std::unique_ptr<Schedule> make_schedule(const Spec& spec, const ScheduleOptions& options);

#define REGISTER_SCHEDULE(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::schedules())

}  // namespace orrery::nn
