// Cosine fall from rate to final_rate over the progress p in [0, 1].  Loshchilov and Hutter 2017, arXiv:1608.03983.
//   r(p) = final_rate + (rate - final_rate) (1 + cos(pi p)) / 2
#include <cmath>
#include <numbers>

#include "nn/schedule.h"

namespace orrery::nn {
namespace {
double cosine_rate(double p, const ScheduleOptions& o) {
  return o.final_rate + (o.rate - o.final_rate) * 0.5 * (1 + std::cos(std::numbers::pi * p));
}
REGISTER_SCHEDULE(cosine_rate, "cosine", "final_rate + (rate - final_rate) (1 + cos(pi p)) / 2",
                  "Loshchilov and Hutter 2017, arXiv:1608.03983", "rate, final_rate");
}  // namespace
}  // namespace orrery::nn
