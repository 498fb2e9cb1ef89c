#include "models/study/verdict.h"

#include <algorithm>
#include <cmath>

#include "engine/types/check.h"

namespace orrery::models {
namespace {

std::optional<size_t> samples_needed(double deviation, double distance) {
  const auto resolves = [&](size_t n) {
    return student_quantile(0.95, static_cast<int>(n) - 1) * deviation / std::sqrt(static_cast<double>(n)) < distance;
  };
  if (!resolves(max_samples)) return {};
  size_t too_few = 1, enough = max_samples;  // t falls and sqrt(n) rises, so bisection works
  while (enough - too_few > 1) {
    const size_t middle = (too_few + enough) / 2;
    (resolves(middle) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace

std::string name(Verdict verdict) {
  return verdict == Verdict::shown ? "shown" : verdict == Verdict::reversed ? "reversed" : "not shown";
}

bool falls_short(double d, RefutedWhen refuted, double bound) {
  return (refuted == RefutedWhen::above && bound < d && d <= 0) ||
         (refuted == RefutedWhen::below && 0 <= d && d < bound);
}

TestResult test_differences(std::span<const double> differences, RefutedWhen refuted, double bound) {
  const std::optional<Interval> interval = confidence_interval(differences);
  check(interval.has_value(), "study: a verdict requires two samples or more, not ", differences.size());
  check(refuted != RefutedWhen::outside || bound >= 0, "study: the margin is ", bound, "; it must be at least 0");
  const auto [mean, low, high] = *interval;
  TestResult result{Verdict::not_shown, *interval, differences.size(), {}};
  const bool equality = refuted == RefutedWhen::outside;
  // Between these bounds the verdict is open; for an equality this is the claimed range.
  const double lower = equality ? -bound : refuted == RefutedWhen::above ? bound : std::min(bound, 0.0);
  const double upper = equality ? bound : refuted == RefutedWhen::above ? std::max(bound, 0.0) : bound;
  const auto near = [&, close = (high - low) / 20](double end) {
    return std::abs(end - lower) < close || std::abs(end - upper) < close;
  };
  result.is_borderline = near(low) || near(high);
  const bool below = high < lower, above = low > upper;
  if (equality) {
    if (low > lower && high < upper) result.verdict = Verdict::shown;
    if (below || above) result.verdict = Verdict::reversed;
  } else if (below || above) {
    result.verdict = below == (refuted == RefutedWhen::above) ? Verdict::shown : Verdict::reversed;
  }
  if (result.verdict == Verdict::not_shown && !falls_short(mean, refuted, bound))
    result.needed =
        samples_needed(spread_of(differences).deviation, std::min(std::abs(mean - lower), std::abs(mean - upper)));
  return result;
}

Verdict verdict_of_all(std::span<const Verdict> verdicts) {
  const auto is = [&](Verdict which) { return [=](Verdict each) { return each == which; }; };
  if (std::any_of(verdicts.begin(), verdicts.end(), is(Verdict::reversed))) return Verdict::reversed;
  const bool all = !verdicts.empty() && std::all_of(verdicts.begin(), verdicts.end(), is(Verdict::shown));
  return all ? Verdict::shown : Verdict::not_shown;
}

}  // namespace orrery::models
