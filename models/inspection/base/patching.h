// Activation patching: this example runs with a value of the other example, and the result is the fraction of the
// difference between the examples that this restores,
//   fraction = (m(patched) - m(this)) / (m(other) - m(this))   1: the other's behaviour is back; below 0: farther away
//   m = z[the other's target] - z[this one's], of logits z at the requested position, or where the two examples
//       differ most in m; for equal targets, m = z[the target]; with --answer or --against, m = z[answer] - z[against]
//       at the requested or the last position (the logit difference of TransformerLens's studies)
// If the difference is below min_difference, no fractions are computed.
#pragma once

#include "models/inspection/base/edited_run.h"

namespace orrery::models {

// A row of the logits, with m of this example (here) and of the other (there).
struct RowDifference {
  int64_t row;
  int32_t own, others;  // the targets
  double here, there;
  double size() const { return std::abs(there - here); }
};

// A smaller difference changes the odds of the targets by about a tenth at most: the model predicts
// the same for both examples. A fraction of it would be a quotient of small numbers: any state
// that moves the logits slightly would seem to restore all of it, or several times that.
constexpr double min_difference = 0.1;

// Throws unless both examples are of one model.
void check_patchable(const InspectedExample& example, const InspectedExample& other);
// Returns the rows with m, largest difference first: those with a target in both examples, only s.position if it is
// set; one row with --answer or --against.
std::vector<RowDifference> differences(const InspectedExample& example, const InspectedExample& other,
                                       const AnalysisSettings& s);
std::string describe(const InspectedExample& example, const RowDifference& at);
// Returns a view for differences below min_difference, under the heading of an analysis.
View no_difference_view(const std::string& group, const InspectedExample& example, std::span<const RowDifference> all,
                        int64_t max_count);
// Returns the fraction that is restored with this range of a hook value taken from `others`.
double restored_fraction(const InspectedExample& example, const RowDifference& at, const std::string& hook,
                         AxisRange range, const Tensor& others);

}  // namespace orrery::models
