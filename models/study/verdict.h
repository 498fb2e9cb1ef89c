// The verdict on a claim from paired samples.
//
// d_i is the difference of two variants in sample i (a seed or a round); I is Student's interval:
//   I = mean d +- t s / sqrt(n),   s^2 = sum (d_i - mean d)^2 / (n - 1),   t of n - 1 degrees of freedom at 95 %
//
//   refuted if d > b       shown: I < b,       reversed: I > max(b, 0)
//   refuted if d < b       shown: I > b,       reversed: I < min(b, 0)
//   refuted if |d| > b     shown: -b < I < b,  reversed: I < -b or I > b         (equivalence: both ends count)
//
// Anything else is not shown: I contains a bound, or d is smaller than claimed but not the
// opposite. At this spread, the smallest n that would resolve it satisfies
//   t_(n-1) s / sqrt(n) < the distance of mean d from the nearest bound
// No n would if mean d is between the bound and zero. A verdict is on the border if an end of I is
// within a tenth of I's half width from a bound: another machine may round to another verdict.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "models/study/statistics.h"

namespace orrery::models {

enum class RefutedWhen { above, below, outside };  // where d must be, relative to the bound, to refute

enum class Verdict { shown, not_shown, reversed };
std::string name(Verdict verdict);  // shown, not shown, reversed

constexpr size_t max_samples = 10'000;  // limit of `needed`

struct TestResult {
  Verdict verdict = Verdict::not_shown;
  Interval interval;
  size_t samples = 0;
  std::optional<size_t> needed;  // samples to resolve not_shown; none: more than max_samples, or no number
  bool is_borderline = false;
};
// Returns true if d is between the bound and zero: smaller than claimed, but not the opposite.
bool falls_short(double d, RefutedWhen refuted, double bound);

// Tests a claim by two or more differences. `bound` must be at least 0 for `outside`.
TestResult test_differences(std::span<const double> differences, RefutedWhen refuted, double bound);

// Returns reversed if any verdict is reversed, shown if all are shown, else not shown.
Verdict verdict_of_all(std::span<const Verdict> verdicts);

}  // namespace orrery::models
