// Constant rate after the warm-up:  r(p) = rate.
#include "nn/schedule.h"

namespace orrery::nn {
namespace {
double constant_rate(double, const ScheduleOptions& o) { return o.rate; }
REGISTER_SCHEDULE(constant_rate, "constant", "rate", "", "rate");
}  // namespace
}  // namespace orrery::nn
