// Linear decay from learning_rate to min_learning_rate over the progress p in [0, 1]:
//   r = learning_rate + p (min_learning_rate - learning_rate)
#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class LinearSchedule final : public Schedule {
 public:
  static inline const Info info{.name = "linear",
                                .formula = "learning_rate + p (min_learning_rate - learning_rate)",
                                .source = "Devlin et al. 2019, arXiv:1810.04805",
                                .parameters = "learning_rate, min_learning_rate"};
  LinearSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) { read_settings(spec, {}); }

 private:
  double after_warmup(int64_t, double p) const override {
    return options_.learning_rate + p * (options_.min_learning_rate - options_.learning_rate);
  }
};
REGISTER_SCHEDULE(LinearSchedule);

}  // namespace
}  // namespace orrery::nn
