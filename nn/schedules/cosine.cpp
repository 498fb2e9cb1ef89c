// Cosine decay from learning_rate to min_learning_rate over the progress p in [0, 1].
// Loshchilov and Hutter 2017, arXiv:1608.03983.
//   r = min_learning_rate + (learning_rate - min_learning_rate) (1 + cos(pi p)) / 2
#include <cmath>
#include <numbers>

#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class CosineSchedule final : public Schedule {
 public:
  static inline const Info info{
      .name = "cosine",
      .formula = "min_learning_rate + (learning_rate - min_learning_rate) (1 + cos(pi p)) / 2",
      .source = "Loshchilov and Hutter 2017, arXiv:1608.03983",
      .parameters = "learning_rate, min_learning_rate"};
  CosineSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) { read_settings(spec, {}); }

 private:
  double after_warmup(int64_t, double p) const override {
    return options_.min_learning_rate +
           (options_.learning_rate - options_.min_learning_rate) * 0.5 * (1 + std::cos(std::numbers::pi * p));
  }
};
REGISTER_SCHEDULE(CosineSchedule);

}  // namespace
}  // namespace orrery::nn
