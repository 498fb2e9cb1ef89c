// Learning rates over the steps of a run.
#pragma once

#include <memory>
#include <string>

#include "nn/base/entry.h"

namespace orrery::nn {

struct ScheduleOptions {
  double learning_rate = 1e-3;         // the peak
  double min_learning_rate = 1e-4;     // at step `steps`, one after the last step, for those that fall
  int64_t warmup_steps = 100;          // steps of the rise to the peak, which step `warmup_steps` reaches
  int64_t steps = 2000;                // of the whole run
  std::string warmup_form = "linear";  // or quadratic
};

class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options);
  virtual ~Schedule() = default;
  double learning_rate(int64_t step) const;  // of step 0, 1, ...

 protected:
  // At a step after the warm-up; `progress` runs from 0 there to 1 at step `steps`, which ends the run, and stays 1.
  virtual double after_warmup(int64_t step, double progress) const = 0;
  const ScheduleOptions options_;
};

using ScheduleEntry = Entry<Schedule, const ScheduleOptions&>;
Registry<ScheduleEntry>& schedules();
// "cosine", "warmup_stable_decay(decay_fraction=0.2)"
std::unique_ptr<Schedule> make_schedule(const Spec& spec, const ScheduleOptions& options);

#define REGISTER_SCHEDULE(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::schedules())

}  // namespace orrery::nn
