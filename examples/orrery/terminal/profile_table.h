// The table of `train --profile`.
#pragma once

#include <string>

#include "engine/autograd/profile.h"

namespace orrery::program {

struct MeasuredPeak {
  double flops = 0;  // a second, of a large f32 product
  double bytes = 0;  // a second, read and written by a copy
};
MeasuredPeak measure_peak();  // takes about a second

// One row for each operation and direction, the slowest first.  A row states its rate against the peak that it is
// closer to: arithmetic or memory.
std::string profile_table(const Profile& profile, const MeasuredPeak& peak);
inline std::string profile_table(const Profile& profile) { return profile_table(profile, measure_peak()); }

}  // namespace orrery::program
