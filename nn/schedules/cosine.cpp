// Cosine fall from rate to final_rate over the progress p in [0, 1].  Loshchilov and Hutter 2017, arXiv:1608.03983.
//   r = final_rate + (rate - final_rate) (1 + cos(pi p)) / 2
#include <cmath>
#include <numbers>

#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class CosineSchedule final : public Schedule {
 public:
  static inline const Info info{.name = "cosine",
                                .formula = "final_rate + (rate - final_rate) (1 + cos(pi p)) / 2",
                                .source = "Loshchilov and Hutter 2017, arXiv:1608.03983",
                                .parameters = "rate, final_rate"};
  CosineSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) { read_settings(spec, {}); }

 private:
  double after_warm_up(int64_t, double p) const override {
    return options_.final_rate + (options_.rate - options_.final_rate) * 0.5 * (1 + std::cos(std::numbers::pi * p));
  }
};
REGISTER_SCHEDULE(CosineSchedule);

}  // namespace
}  // namespace orrery::nn
