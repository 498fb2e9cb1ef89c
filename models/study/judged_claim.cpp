#include "models/study/judged_claim.h"

#include <algorithm>
#include <cmath>

#include "engine/settings/spec.h"
#include "engine/types/check.h"
#include "engine/types/wording.h"

namespace orrery::models {
namespace {

std::string number_text(double x) {
  const bool plain = x == 0 || (std::abs(x) >= 1e-3 && std::abs(x) < 1e6);
  return plain ? signed_fixed(x, 4) : (x > 0 ? "+" : "") + significant(x, 3);
}
std::string shown(double x, bool share) { return share ? signed_fixed(100 * x, 2) + " %" : number_text(x); }

std::string bound_text(const Comparison& c) {
  if (c.bound == 0) return "zero";
  const std::string number = c.share ? print_number(100 * std::abs(c.bound)) + " %" : print_number(std::abs(c.bound));
  return c.refuted == Refuted::outside ? "the margin +-" + number
                                       : "the margin " + (c.bound < 0 ? "-" + number : number);
}

std::string samples_text(const Claim& claim, int64_t count) {
  return text(grouped(count), claim.kind == Claim::Kind::timed ? " rounds" : " seeds");
}

std::string sentence_of(const Claim& claim, const Comparison& c, const JudgedComparison& judged) {
  std::string all = text(name(judged.verdict), ": ", in_words(judged.metric), ", ", judged.name,
                         judged.at.empty() ? "" : " at " + judged.at, " is ", shown(judged.mean, c.share),
                         ", 95 % interval ", shown(judged.low, c.share), " to ", shown(judged.high, c.share), ", ",
                         samples_text(claim, judged.samples), "; ");
  const std::string bound = bound_text(c);
  const bool equality = c.refuted == Refuted::outside, above = c.refuted == Refuted::above;
  switch (judged.verdict) {
    case Verdict::shown:
      return all + (equality ? "both ends are within " : above ? "the interval is below " : "the interval is above ") +
             bound;
    case Verdict::reversed:
      return all + "the interval is " + (equality ? "outside " : above ? "above " : "below ") + bound;
    case Verdict::not_shown:
      break;
  }
  const std::string past = above ? "above " : "below ";
  const bool holds_bound = judged.low <= c.bound && judged.high >= c.bound;
  if (!equality && !holds_bound) return all + "the interval is " + past + bound + ", but not " + past + "zero";
  if (falls_short(judged.mean, c.refuted, c.bound))
    return all + "the interval contains " + bound + ", and the mean is " + past + "it, but not " + past + "zero";
  all += "the interval contains " + (equality ? "an end of " + bound : bound) + "; ";
  if (judged.needed == 0)
    return all + "with this spread, " + samples_text(claim, most_samples) + " would not resolve it";
  return all + "with this spread, " + samples_text(claim, judged.needed) + " would resolve it";
}

using Samples = std::vector<std::optional<double>>;

// Returns one value per sample; none if the sample was not measured at every swept value.
Samples over_sweep(const Claim& claim, const Metric& metric, const std::vector<Samples>& at_values) {
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

JudgedComparison judge(const Claim& claim, const Comparison& c, const SampleRow& left, const Samples& right) {
  JudgedComparison judged;
  judged.refuted_if = c.text, judged.metric = print(claim.metrics[c.metric]), judged.at = left.at;
  judged.name = c.share ? c.left + " / " + c.right + " - 1" : c.left + " - " + c.right;
  std::vector<double> differences;
  for (size_t i = 0; i < left.samples.size(); ++i)
    if (left.samples[i] && right[i])
      differences.push_back(c.share ? *left.samples[i] / *right[i] - 1 : *left.samples[i] - *right[i]);
  judged.samples = static_cast<int64_t>(differences.size());
  if (differences.size() < left.samples.size()) {
    judged.sentence =
        text("not shown: ", in_words(judged.metric), ", ", judged.name, judged.at.empty() ? "" : " at " + judged.at,
             " has ", differences.size(), " of ", samples_text(claim, static_cast<int64_t>(left.samples.size())),
             "; failed and diverged runs cannot be left out");
    return judged;
  }
  for (const double d : differences)
    check(std::isfinite(d), claim.path, ": ", judged.name, " is ", d, ", because ", c.right,
          " is 0; use a margin without %");
  const Judgement found = judge(differences, c.refuted, c.bound);
  judged.verdict = found.verdict, judged.known = true, judged.on_border = found.on_border;
  judged.mean = found.interval.mean, judged.low = found.interval.low, judged.high = found.interval.high;
  judged.needed = static_cast<int64_t>(found.needed.value_or(0));
  judged.sentence = sentence_of(claim, c, judged) + (judged.on_border ? "; on the border" : "");
  return judged;
}

}  // namespace

std::vector<SampleRow> sample_rows(const Claim& claim, const Measurements& measured) {
  std::vector<SampleRow> rows;
  for (size_t m = 0; m < claim.metrics.size(); ++m)
    for (size_t v = 0; v < claim.variants.size(); ++v) {
      const std::string& variant = claim.variants[v].name;
      if (!claim.concerns(m, variant)) continue;
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

JudgedClaim judge(const Claim& claim, const Measurements& measured) {
  const std::vector<SampleRow> rows = sample_rows(claim, measured);
  JudgedClaim judged;
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
        const auto place = static_cast<size_t>(std::count_if(rows.data(), &left, [&](const SampleRow& row) {
          return row.metric == left.metric && row.variant == left.variant;
        }));
        const double number = measure(c.number, {}, claim.swept_number(place));
        for (auto& each : right) each = number;
      }
      judged.comparisons.push_back(judge(claim, c, left, right));
      verdicts.push_back(judged.comparisons.back().verdict);
    }
  judged.verdict = verdict_of_all(verdicts);
  return judged;
}

}  // namespace orrery::models
