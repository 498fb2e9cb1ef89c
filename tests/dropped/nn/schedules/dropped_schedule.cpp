// learning_rate for the first half, then min_learning_rate.
#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class DroppedSchedule final : public Schedule {
 public:
  static inline const Info info{.name = "dropped_schedule",
                                .formula = "learning_rate if p < 1/2, else min_learning_rate",
                                .source = "a test",
                                .parameters = "learning_rate, min_learning_rate"};
  DroppedSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) { read_settings(spec, {}); }

 private:
  double after_warmup(int64_t, double p) const override {
    return p < 0.5 ? options_.learning_rate : options_.min_learning_rate;
  }
};
REGISTER_SCHEDULE(DroppedSchedule);

}  // namespace
}  // namespace orrery::nn
