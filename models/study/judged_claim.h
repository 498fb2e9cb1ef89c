// A claim's verdict: what was measured, held against what would refute it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/study/claim.h"

namespace orrery::models {

// values[m][v][s][i]: metric m of variant v at swept value s in sample i, a seed or a round.  None: the run failed or
// diverged, and `missing` says so in a sentence.
struct Measurements {
  std::vector<std::vector<std::vector<std::vector<std::optional<double>>>>> values;
  std::vector<std::string> missing;
};

struct JudgedComparison {
  std::string refuted_if;  // as the claim has it
  std::string metric;
  std::string name;  // what the interval is of: "relu - softmax" or "relu / softmax - 1"
  std::string at;    // "feed_forward.slots=32"; empty: of the whole sweep, or there is none
  Verdict verdict = Verdict::not_shown;
  bool known = false;  // else no interval: samples are missing
  bool on_border = false;
  double mean = 0, low = 0, high = 0;
  int64_t samples = 0, needed = 0;  // needed: to resolve what is not shown; 0: no number of them would
  std::string sentence;
};

struct JudgedClaim {
  Verdict verdict = Verdict::not_shown;
  std::vector<JudgedComparison> comparisons;
};

// Two samples or more of each.  A comparison of which a sample is missing is not shown: leaving it out would favour
// the variant that failed.
JudgedClaim judge(const Claim& claim, const Measurements& measured);

// What is compared: the metric itself, or what a metric over the sweep makes of each sample.  Rows of metrics, of
// variants, then of swept values if the metric is not over them.
struct SampleRow {
  size_t metric = 0;  // which of the claim's
  std::string variant, at;
  std::vector<std::optional<double>> samples;
};
std::vector<SampleRow> sample_rows(const Claim& claim, const Measurements& measured);

}  // namespace orrery::models
