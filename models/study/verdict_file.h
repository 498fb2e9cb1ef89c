// verdict.json of a study's folder: the claim, what was found, and what it took.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/formats/output_file.h"
#include "models/study/judged_claim.h"

namespace orrery::models {

struct StudyVerdict {
  std::string file, source, sentence, kind, metric, version, figure, smaller;
  bool main = false;
  std::string claim;           // SHA-256 of the claim's file
  // Of what else was judged by: "config", and what its runs have read (runs.h), as data, each with the SHA-256 of all
  // that it was in these runs.
  std::map<std::string, std::set<std::string>> read;
  std::string command, runs;   // that repeats it; the folder of its runs
  bool smoke = false;          // nothing was judged
  std::string samples;         // "3 seeds"
  double minutes = 0;          // that the study took now
  double minutes_of_runs = 0;  // of the steps of all its runs, whenever they were trained
  JudgedClaim judged;
  // Of learning rates that were chosen: each variant's, the one that is best for all, and what is found there if that
  // is not every variant's own.
  std::vector<std::pair<std::string, double>> rates;
  double common_rate = 0;
  std::optional<JudgedClaim> at_common_rate;
  std::vector<std::string> missing;  // sentences of runs without a figure

  std::string word() const;  // shown, shown at this scale, not shown, reversed, or smoke
  bool on_border() const;
};

OutputKind verdict_kind();
void write_verdict(const std::string& path, const StudyVerdict& verdict);
StudyVerdict read_verdict(const std::string& path);

}  // namespace orrery::models
