// verdict.json in a study's folder: the claim, the results and their cost.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/formats/output_file.h"
#include "models/study/claim_result.h"

namespace orrery::models {

// Metrics have their current names, also if a former program wrote the file.
struct StudyVerdict {
  std::string file, source, sentence, kind, metric, version, reported, smaller;
  bool main = false;
  std::string claim;    // SHA-256 of the claim's file
  std::string meaning;  // claim_hash of its file; empty: an older program wrote the verdict
  // SHA-256 hashes of the other inputs, by name: "config" and inputs of the runs (input_fingerprints
  // in runs.h), such as "data". An input has several hashes if it differed between runs.
  std::map<std::string, std::set<std::string>> input_hashes;
  std::string command, runs;   // the command that repeats the study; its runs' folder
  bool smoke = false;          // true: a smoke run, which has no verdict
  std::string samples;         // "3 seeds"
  double minutes = 0;          // duration of this study
  double minutes_of_runs = 0;  // of the steps of all its runs, including earlier ones
  ClaimResult result;
  // Chosen learning rates: each variant's, the best shared rate, and the result at the shared rate
  // if it is not every variant's own.
  std::vector<std::pair<std::string, double>> learning_rates;
  double shared_lr = 0;
  std::optional<ClaimResult> at_shared_lr;
  std::vector<std::string> missing;  // sentences about runs without a value

  std::string label() const;  // shown, shown at this scale, not shown, reversed, or smoke
  bool is_borderline() const;  // some comparison is (verdict.h)
};

OutputKind verdict_kind();
// Throws Error if the path has a file that is not a verdict.
void write_verdict(const std::string& path, const StudyVerdict& verdict);
// Also reads verdicts of older versions. Throws Error with the path and the key that is wrong.
StudyVerdict read_verdict(const std::string& path);

}  // namespace orrery::models
