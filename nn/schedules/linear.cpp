// Linear fall from rate to final_rate over the progress p in [0, 1]:  r(p) = rate + p (final_rate - rate).
#include "nn/schedule.h"

namespace orrery::nn {
namespace {
double linear_rate(double p, const ScheduleOptions& o) { return o.rate + p * (o.final_rate - o.rate); }
REGISTER_SCHEDULE(linear_rate, "linear", "rate + p (final_rate - rate)", "", "rate, final_rate");
}  // namespace
}  // namespace orrery::nn
