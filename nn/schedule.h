// Learning rates over the steps of a run.
#pragma once

#include <memory>
#include <string>

#include "engine/config.h"
#include "engine/registry.h"

namespace orrery::nn {

struct ScheduleOptions {
  double rate = 1e-3;        // the peak
  double final_rate = 1e-4;  // at the last step, for those that fall
  int64_t warm_up = 100;     // steps of linear rise: rate (step + 1) / (warm_up + 1)
  int64_t steps = 2000;      // of the whole run
};

struct ScheduleEntry {
  // The rate at a step after the warm-up: progress runs from 0 to 1.
  double (*rate)(double progress, const ScheduleOptions& options);
  std::string name, formula, source, parameters = {};  // the options that it reads
};
Registry<ScheduleEntry>& schedules();

class Schedule {
 public:
  Schedule(const std::string& name, const ScheduleOptions& options);  // "constant", "linear", "cosine"
  double rate(int64_t step) const;                                    // of step 0, 1, ...

 private:
  const ScheduleEntry* entry_;
  ScheduleOptions options_;
};

#define REGISTER_SCHEDULE(function, ...)                     \
  [[maybe_unused]] static const bool registered_##function = \
      (::orrery::nn::schedules().add({function, __VA_ARGS__}), true)

}  // namespace orrery::nn
