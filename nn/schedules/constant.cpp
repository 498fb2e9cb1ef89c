// Constant rate after the warm-up:  r = rate.
#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class ConstantSchedule final : public Schedule {
 public:
  static inline const Info info{.name = "constant", .formula = "rate", .source = "definition", .parameters = "rate"};
  ConstantSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) { read_settings(spec, {}); }

 private:
  double after_warm_up(int64_t, double) const override { return options_.rate; }
};
REGISTER_SCHEDULE(ConstantSchedule);

}  // namespace
}  // namespace orrery::nn
