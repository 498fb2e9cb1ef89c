// Inverse square root. Vaswani et al. 2017, arXiv:1706.03762, section 5.3.
//   r = learning_rate sqrt(w / t),   t = step + 1,   w = warmup_steps + 1
// t counts steps from 1; step w has the peak learning rate. With a linear warm-up this is the
// paper's k min(t^-1/2, t w^-3/2) for k = learning_rate sqrt(w). The run's length and
// min_learning_rate have no effect, so a run can continue at any time.
#include <cmath>

#include "nn/schedules/base/schedule.h"

namespace orrery::nn {
namespace {

class InverseSquareRootSchedule final : public Schedule {
 public:
  static inline const Info info{.name = "inverse_square_root",
                                .formula = "learning_rate sqrt((warmup_steps + 1) / (step + 1))",
                                .source = "Vaswani et al. 2017, arXiv:1706.03762",
                                .parameters = "learning_rate, warmup_steps"};
  InverseSquareRootSchedule(const Spec& spec, const ScheduleOptions& options) : Schedule(options) {
    read_settings(spec, {});
  }

 private:
  double after_warmup(int64_t step, double) const override {
    return options_.learning_rate *
           std::sqrt(static_cast<double>(options_.warmup_steps + 1) / static_cast<double>(step + 1));
  }
};
REGISTER_SCHEDULE(InverseSquareRootSchedule);

}  // namespace
}  // namespace orrery::nn
