// Independent checks of activation derivatives on the grid -12, -12 + 1/16, ..., 12: dual numbers
// run through the value, and finite differences of the value.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace orrery::program {

struct PointwiseRow {  // for the input or one learned parameter
  std::string input;
  int64_t elements = 0;                // points of the grid that are compared
  double dual_error = 0;               // largest |explicit - dual| / max(1, |explicit|); NaN counts as infinite
  double finite_difference_error = 0;  // likewise, against the finite difference
  double worst_x = 0, worst_explicit = 0, worst_finite_difference = 0;  // largest deviation from the finite difference
  double factor = NAN;  // the derivative is this multiple of all finite differences; NaN: there is none
};
inline constexpr double dual_tolerance = 1e-14, pointwise_difference_tolerance = 1e-9;

// Checks an activation by its name; throws if it is unknown. Skips points close to a kink,
// where finite differences are meaningless.
std::vector<PointwiseRow> check_pointwise(const std::string& activation);

}  // namespace orrery::program
