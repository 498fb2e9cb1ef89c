// Constant after the warm-up:  r = learning_rate.
#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class ConstantSchedule final : public Schedule {
 public:
  static inline const Info info{
      .name = "constant", .formula = "learning_rate", .source = "definition", .parameters = "learning_rate"};
  ConstantSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) { read_settings(spec, {}); }

 private:
  double after_warmup(int64_t, double) const override { return options_.learning_rate; }
};
REGISTER_SCHEDULE(ConstantSchedule);

}  // namespace
}  // namespace orrery::nn
