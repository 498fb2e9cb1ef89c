// Witnesses for the slopes of activations: the recorded operation against dual numbers run through the value, and
// against a difference quotient of the value, at every point of a grid.
#pragma once

#include <string>
#include <vector>

namespace orrery::program {

struct PointwiseRow {  // of the input, or of one learned parameter
  std::string input;
  int64_t elements = 0;
  double against_dual = 0;      // largest |explicit - dual| / max(1, |explicit|); NaN counts as infinite
  double against_quotient = 0;  // the same against the quotient
  double worst_x = 0, worst_explicit = 0, worst_quotient = 0;  // where the quotient is farthest
};
inline constexpr double dual_tolerance = 1e-14, pointwise_quotient_tolerance = 1e-9;

// Of an activation, with parameters or without.  Points close to a kink are left out: there a quotient says nothing.
std::vector<PointwiseRow> check_pointwise(const std::string& activation);

}  // namespace orrery::program
