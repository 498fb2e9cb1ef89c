// The table of `train --profile`.
#pragma once

#include <string>

#include "engine/autograd/profile.h"

namespace orrery::program {

struct MeasuredPeak {
  double flops = 0;  // per second, of a large f32 product
  double bytes = 0;  // per second, read plus written, of a copy
};
MeasuredPeak measure_peak();  // takes about a second

// Returns one row per operation and direction, slowest first. The rate is compared with the peak
// that is closer: arithmetic or memory.
std::string profile_table(const Profile& profile, const MeasuredPeak& peak);
inline std::string profile_table(const Profile& profile) { return profile_table(profile, measure_peak()); }

}  // namespace orrery::program
