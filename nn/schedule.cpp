#include "nn/schedule.h"

#include <algorithm>

#include "engine/check.h"

namespace orrery::nn {

Registry<ScheduleEntry>& schedules() {
  static Registry<ScheduleEntry> all("schedule");
  return all;
}

Schedule::Schedule(const std::string& name, const ScheduleOptions& options)
    : entry_(&schedules().at(name)), options_(options) {
  check(options.rate > 0 && options.final_rate >= 0, "schedule: rate ", options.rate,
        " must be above 0 and final_rate ", options.final_rate, " not negative");
  check(options.warm_up >= 0 && options.steps >= 0, "schedule: warm_up ", options.warm_up, " and steps ", options.steps,
        " must not be negative");
}
double Schedule::rate(int64_t step) const {
  if (step < options_.warm_up)
    return options_.rate * static_cast<double>(step + 1) / static_cast<double>(options_.warm_up + 1);
  const double length = static_cast<double>(std::max<int64_t>(1, options_.steps - options_.warm_up));
  return entry_->rate(std::min(1.0, static_cast<double>(step - options_.warm_up) / length), options_);
}

}  // namespace orrery::nn
