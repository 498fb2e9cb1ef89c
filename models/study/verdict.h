// What paired samples say of a claim.
//
// d_i is the difference of two variants in sample i, which is a seed or a round, and the interval is Student's:
//   I = mean d +- t s / sqrt(n),   s^2 = sum (d_i - mean d)^2 / (n - 1),   t of n - 1 degrees of freedom at 95 %
//
//   refuted if d > b       shown: I < b,       reversed: I > max(b, 0)
//   refuted if d < b       shown: I > b,       reversed: I < min(b, 0)
//   refuted if |d| > b     shown: -b < I < b,  reversed: I < -b or I > b         (equivalence: both ends count)
//
// Anything else is not shown: I holds a bound, or d is smaller than what is claimed and yet not its opposite.  At this
// spread it would be resolved by the least n with
//   t_(n-1) s / sqrt(n) < the distance of mean d from the nearest bound
// and by none where mean d lies between the two.  It is on the border if an end of I lies within a tenth of its half
// width from a bound: another machine, which rounds otherwise, may say otherwise.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "models/study/statistics.h"

namespace orrery::models {

enum class Refuted { above, below, outside };  // what d would have to be, against the bound

enum class Verdict { shown, not_shown, reversed };
std::string name(Verdict verdict);  // shown, not shown, reversed

constexpr size_t most_samples = 10'000;  // nobody trains more

struct Judgement {
  Verdict verdict = Verdict::not_shown;
  Interval interval;
  size_t samples = 0;
  std::optional<size_t> needed;  // of one that is not shown; none: more than most_samples, or no number
  bool on_border = false;
};
// Whether d lies between the bound and zero: less than what is claimed, and yet not its opposite.
bool falls_short(double d, Refuted refuted, double bound);

// Of two differences or more.  `bound` is at least 0 for `outside`.
Judgement judge(std::span<const double> differences, Refuted refuted, double bound);

// Of several: shown if all are, reversed if any is.
Verdict verdict_of_all(std::span<const Verdict> verdicts);

}  // namespace orrery::models
