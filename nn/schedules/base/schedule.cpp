// Warm-up of all schedules. With u = (step + 1) / (warmup_steps + 1), which is 1 at step `warmup_steps`:
//   linear     learning_rate u
//   quadratic  learning_rate (1 - (1 - u)^2): twice as steep at the beginning, flat at the end
#include "nn/schedules/base/schedule.h"

#include <algorithm>

#include "engine/types/check.h"
#include "nn/base/spec_family.h"

namespace orrery::nn {

const bool family_of_schedules = add_spec_family<schedules>("schedule");

Registry<ScheduleEntry>& schedules() {
  static Registry<ScheduleEntry> all("schedule");
  return all;
}
std::unique_ptr<Schedule> make_schedule(const Spec& spec, const ScheduleOptions& options) {
  return make_from(schedules(), spec, options);
}

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  check(options.learning_rate > 0 && options.min_learning_rate >= 0, "schedule: learning_rate (", options.learning_rate,
        ") must be above 0 and min_learning_rate (", options.min_learning_rate, ") at least 0");
  check(options.warmup_steps >= 0 && options.steps >= 0, "schedule: warmup_steps (", options.warmup_steps,
        ") and steps (", options.steps, ") must be at least 0");
  check(options.warmup_form == "linear" || options.warmup_form == "quadratic", "schedule: warmup_form '",
        options.warmup_form, "' must be linear or quadratic");
}

double Schedule::learning_rate(int64_t step) const {
  if (step < options_.warmup_steps) {
    const double u = (static_cast<double>(step) + 1) / (static_cast<double>(options_.warmup_steps) + 1);
    return options_.learning_rate * (options_.warmup_form == "linear" ? u : 1 - (1 - u) * (1 - u));
  }
  const double length = static_cast<double>(std::max<int64_t>(1, options_.steps - options_.warmup_steps));
  return after_warmup(step, std::min(1.0, static_cast<double>(step - options_.warmup_steps) / length));
}

}  // namespace orrery::nn
