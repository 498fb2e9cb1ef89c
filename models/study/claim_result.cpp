#include "models/study/claim_result.h"

#include <algorithm>
#include <cmath>

#include "engine/settings/spec.h"
#include "engine/types/check.h"
#include "engine/types/format.h"

namespace orrery::models {
namespace {

std::string number_text(double x) {
  const bool plain = x == 0 || (std::abs(x) >= 1e-3 && std::abs(x) < 1e6);
  return plain ? signed_fixed(x, 4) : (x > 0 ? "+" : "") + significant(x, 3);
}
std::string shown(double x, bool is_relative) { return is_relative ? signed_fixed(100 * x, 2) + " %" : number_text(x); }

std::string bound_text(const Comparison& c) {
  if (c.bound == 0) return "zero";
  const std::string number =
      c.is_relative ? print_number(100 * std::abs(c.bound)) + " %" : print_number(std::abs(c.bound));
  return c.refuted == RefutedWhen::outside ? "the margin +-" + number
                                           : "the margin " + (c.bound < 0 ? "-" + number : number);
}

std::string samples_text(const Claim& claim, int64_t count) {
  return text(with_commas(count), claim.kind == Claim::Kind::timed ? " rounds" : " seeds");
}

std::string sentence_of(const Claim& claim, const Comparison& c, const ComparisonResult& result) {
  std::string all = text(name(result.verdict), ": ", humanize(result.metric), ", ", result.name,
                         result.at.empty() ? "" : " at " + result.at, " is ", shown(result.mean, c.is_relative),
                         ", 95 % interval ", shown(result.low, c.is_relative), " to ",
                         shown(result.high, c.is_relative), ", ", samples_text(claim, result.samples), "; ");
  const std::string bound = bound_text(c);
  const bool equality = c.refuted == RefutedWhen::outside, above = c.refuted == RefutedWhen::above;
  switch (result.verdict) {
    case Verdict::shown:
      return all + (equality ? "both ends are within " : above ? "the interval is below " : "the interval is above ") +
             bound;
    case Verdict::reversed:
      return all + "the interval is " + (equality ? "outside " : above ? "above " : "below ") + bound;
    case Verdict::not_shown:
      break;
  }
  const std::string past = above ? "above " : "below ";
  const bool holds_bound = result.low <= c.bound && result.high >= c.bound;
  if (!equality && !holds_bound) return all + "the interval is " + past + bound + ", but not " + past + "zero";
  if (falls_short(result.mean, c.refuted, c.bound))
    return all + "the interval contains " + bound + ", and the mean is " + past + "it, but not " + past + "zero";
  all += "the interval contains " + (equality ? "an end of " + bound : bound) + "; ";
  if (result.needed == 0)
    return all + "with this spread, " + samples_text(claim, max_samples) + " would not resolve it";
  return all + "with this spread, " + samples_text(claim, result.needed) + " would resolve it";
}

using Samples = std::vector<std::optional<double>>;

// Returns one value per sample; none if the sample was not measured at every swept value.
Samples over_sweep(const Claim& claim, const MetricExpression& metric, const std::vector<Samples>& at_values) {
  Samples all;
  for (size_t i = 0; i < at_values[0].size(); ++i) {
    std::vector<double> x, y;
    for (size_t s = 0; s < at_values.size(); ++s)
      if (at_values[s][i]) x.push_back(claim.swept_number(s)), y.push_back(*at_values[s][i]);
    all.emplace_back();
    if (x.size() == at_values.size()) all.back() = measure_sweep(metric, x, y);
  }
  return all;
}

ComparisonResult test_comparison(const Claim& claim, const Comparison& c, const SampleRow& left, const Samples& right) {
  ComparisonResult result;
  result.refuted_if = c.text, result.metric = print(claim.metrics[c.metric]), result.at = left.at;
  const std::string right_text = c.right.starts_with('-') ? "(" + c.right + ")" : c.right;  // a negative number
  result.name = c.left + (c.is_relative ? " / " + c.right + " - 1" : " - " + right_text);
  std::vector<double> differences;
  for (size_t i = 0; i < left.samples.size(); ++i)
    if (left.samples[i] && right[i])
      differences.push_back(c.is_relative ? *left.samples[i] / *right[i] - 1 : *left.samples[i] - *right[i]);
  result.samples = static_cast<int64_t>(differences.size());
  if (differences.size() < left.samples.size()) {
    result.sentence =
        text("not shown: ", humanize(result.metric), ", ", result.name, result.at.empty() ? "" : " at " + result.at,
             " has ", differences.size(), " of ", samples_text(claim, static_cast<int64_t>(left.samples.size())),
             "; failed and diverged runs cannot be left out");
    return result;
  }
  for (const double d : differences)
    check(std::isfinite(d), claim.path, ": ", result.name, " is ", d, ", because ", c.right,
          " is 0; use a margin without %");
  const TestResult found = test_differences(differences, c.refuted, c.bound);
  result.verdict = found.verdict, result.known = true, result.is_borderline = found.is_borderline;
  result.mean = found.interval.mean, result.low = found.interval.low, result.high = found.interval.high;
  result.needed = static_cast<int64_t>(found.needed.value_or(0));
  result.sentence = sentence_of(claim, c, result) + (result.is_borderline ? "; on the border" : "");
  return result;
}

}  // namespace

std::vector<SampleRow> sample_rows(const Claim& claim, const Measurements& measured) {
  std::vector<SampleRow> rows;
  for (size_t m = 0; m < claim.metrics.size(); ++m)
    for (size_t v = 0; v < claim.variants.size(); ++v) {
      const std::string& variant = claim.variants[v].name;
      if (!claim.is_measured(m, variant)) continue;
      const auto& at_values = measured.values[m][v];
      if (claim.metrics[m].is_of_sweep()) {
        rows.push_back({m, variant, "", over_sweep(claim, claim.metrics[m], at_values)});
        continue;
      }
      for (size_t s = 0; s < at_values.size(); ++s)
        rows.push_back(
            {m, variant, claim.sweep.empty() ? "" : claim.sweep[0].key + "=" + claim.swept_text(s), at_values[s]});
    }
  return rows;
}

ClaimResult test_claim(const Claim& claim, const Measurements& measured) {
  const std::vector<SampleRow> rows = sample_rows(claim, measured);
  ClaimResult result;
  std::vector<Verdict> verdicts;
  for (const Comparison& c : claim.refuted_if)
    for (const SampleRow& left : rows) {
      if (left.variant != c.left || left.metric != c.metric) continue;
      Samples right(left.samples.size());
      const auto other = std::find_if(rows.begin(), rows.end(), [&](const SampleRow& row) {
        return row.metric == c.metric && row.variant == c.right && row.at == left.at;
      });
      if (c.of_variants) {
        right = other->samples;
      } else {
        const auto swept = static_cast<size_t>(std::count_if(rows.data(), &left, [&](const SampleRow& row) {
          return row.metric == left.metric && row.variant == left.variant;
        }));
        const double number = measure(c.number, {}, claim.swept_number(swept));
        for (auto& each : right) each = number;
      }
      result.comparisons.push_back(test_comparison(claim, c, left, right));
      verdicts.push_back(result.comparisons.back().verdict);
    }
  result.verdict = verdict_of_all(verdicts);
  return result;
}

}  // namespace orrery::models
