// The warm-up that all schedules share.  With u = (step + 1) / (warm_up + 1), which is 1 at step `warm_up`:
//   linear     rate u
//   quadratic  rate (1 - (1 - u)^2): begins twice as steep and arrives level
#include "nn/schedules/base/schedule.h"

#include <algorithm>

#include "engine/base/check.h"
#include "nn/base/gradient_case.h"

namespace orrery::nn {

const bool family_of_schedules = add_family("schedule", [] { return schedules().names(); });

Registry<ScheduleEntry>& schedules() {
  static Registry<ScheduleEntry> all("schedule");
  return all;
}
std::unique_ptr<Schedule> make_schedule(const Spec& spec, const ScheduleOptions& options) {
  return make_from(schedules(), spec, options);
}

Schedule::Schedule(const ScheduleOptions& options) : options_(options) {
  check(options.rate > 0 && options.final_rate >= 0, "schedule: rate ", options.rate,
        " must be above 0 and final_rate ", options.final_rate, " not negative");
  check(options.warm_up >= 0 && options.steps >= 0, "schedule: warm_up ", options.warm_up, " and steps ", options.steps,
        " must not be negative");
  check(options.warm_up_form == "linear" || options.warm_up_form == "quadratic", "schedule: warm_up_form '",
        options.warm_up_form, "' must be linear or quadratic");
}

double Schedule::rate(int64_t step) const {
  if (step < options_.warm_up) {
    const double u = static_cast<double>(step + 1) / static_cast<double>(options_.warm_up + 1);
    return options_.rate * (options_.warm_up_form == "linear" ? u : 1 - (1 - u) * (1 - u));
  }
  const double length = static_cast<double>(std::max<int64_t>(1, options_.steps - options_.warm_up));
  return after_warm_up(step, std::min(1.0, static_cast<double>(step - options_.warm_up) / length));
}

}  // namespace orrery::nn
