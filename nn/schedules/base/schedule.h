// Learning rates over the steps of a run.
#pragma once

#include <memory>
#include <string>

#include "nn/base/entry.h"

namespace orrery::nn {

struct ScheduleOptions {
  double rate = 1e-3;        // the peak
  double final_rate = 1e-4;  // at the last step, for those that fall
  int64_t warm_up = 100;     // steps of the rise to the peak, which step `warm_up` reaches
  int64_t steps = 2000;      // of the whole run
  std::string warm_up_form =
      "linear";  // with u = (step + 1) / (warm_up + 1): rate u; or quadratic: rate (1 - (1 - u)^2)
};

class Schedule {
 public:
  explicit Schedule(const ScheduleOptions& options);
  virtual ~Schedule() = default;
  double rate(int64_t step) const;  // of step 0, 1, ...

 protected:
  // The rate at a step after the warm-up; its progress runs from 0 there to 1 at the end of the run, and stays 1.
  virtual double after_warm_up(int64_t step, double progress) const = 0;
  const ScheduleOptions options_;
};

using ScheduleEntry = Entry<Schedule, const ScheduleOptions&>;
Registry<ScheduleEntry>& schedules();
// "cosine", "warmup_stable_decay(decay=0.2)"
std::unique_ptr<Schedule> make_schedule(const Spec& spec, const ScheduleOptions& options);

#define REGISTER_SCHEDULE(Type) \
  [[maybe_unused]] static const bool registered_##Type = ::orrery::nn::register_type<Type>(::orrery::nn::schedules())

}  // namespace orrery::nn
