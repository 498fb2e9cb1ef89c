// Linear fall from rate to final_rate over the progress p in [0, 1]:  r = rate + p (final_rate - rate).
#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class LinearSchedule final : public Schedule {
 public:
  static inline const Info info{.name = "linear",
                                .formula = "rate + p (final_rate - rate)",
                                .source = "Devlin et al. 2019, arXiv:1810.04805",
                                .parameters = "rate, final_rate"};
  LinearSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) { read_settings(spec, {}); }

 private:
  double after_warm_up(int64_t, double p) const override {
    return options_.rate + p * (options_.final_rate - options_.rate);
  }
};
REGISTER_SCHEDULE(LinearSchedule);

}  // namespace
}  // namespace orrery::nn
