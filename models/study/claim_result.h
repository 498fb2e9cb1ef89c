// A claim's verdict: the measurements, compared with the conditions that would refute the claim.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/study/claim.h"

namespace orrery::models {

// values[m][v][s][i]: metric m of variant v at swept value s in sample i, a seed or a round. None:
// the run lacks the metric, because it diverged and was stopped; `missing` gives the reason in a sentence.
struct Measurements {
  std::vector<std::vector<std::vector<std::vector<std::optional<double>>>>> values;
  std::vector<std::string> missing;
};

struct ComparisonResult {
  std::string refuted_if;  // as written in the claim
  std::string metric;
  std::string name;  // quantity of the interval: "relu - softmax" or "relu / softmax - 1"
  std::string at;    // "feed_forward.slots=32"; empty: the whole sweep, or no sweep
  Verdict verdict = Verdict::not_shown;
  bool known = false;  // false: samples are missing, so there is no interval
  bool is_borderline = false;
  double mean = 0, low = 0, high = 0;
  int64_t samples = 0, needed = 0;  // needed: to resolve "not shown"; 0: no number would
  std::string sentence;
};

struct ClaimResult {
  Verdict verdict = Verdict::not_shown;
  std::vector<ComparisonResult> comparisons;
};

// Tests a claim by two samples or more. A comparison with a missing sample is not shown: omitting
// the sample would favour the variant that failed.
ClaimResult test_claim(const Claim& claim, const Measurements& measured);

// Samples to compare: values of the metric, or for a metric over the sweep one value per sample.
// sample_rows orders them by metric, variant and, unless the metric is over the sweep, swept value.
struct SampleRow {
  size_t metric = 0;  // index into the claim's metrics
  std::string variant, at;
  std::vector<std::optional<double>> samples;
};
std::vector<SampleRow> sample_rows(const Claim& claim, const Measurements& measured);

}  // namespace orrery::models
