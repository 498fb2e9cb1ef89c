// Tests one claim: trains or times its runs and writes the results to a folder.
#pragma once

#include <string>

#include "models/settings/settings_table.h"
#include "models/study/verdict_file.h"

namespace orrery::program {

struct StudySettings {
  std::string out, runs = "runs/pool", all, data;
  int64_t jobs = 0;
  bool judge = true, smoke = false, fresh = false, yes = false;

  template <class V>
  void visit(V& v) {
    v("out", out,
      "folder for verdict.json, table.csv, samples.csv, runs.csv and picture.svg, which `orrery report` shows; none: "
      "runs/studies/NAME of NAME.toml; with --all the folder of those folders");
    v("runs", runs,
      "folder of all runs, which sweeps and studies share: one that has been trained is not trained again");
    v("all", all,
      "a folder of claims, or of folders of them: judge each that is new or has changed, main ones first, and list all "
      "verdicts in README.md and verdicts.csv, beside the claims or in --out");
    v("judge", judge, "no: with --all, only list what has been judged");
    v("data", data, "a folder of the sets that claims name, as images/fashion-mnist");
    v("jobs", jobs, "runs side by side; 0: as many as there are cores, with one thread each.  Time is measured alone",
      between(0, 1024));
    v("smoke", smoke, "one seed, one learning rate, two variants, two steps: whether it runs; nothing is judged");
    v("fresh", fresh, "train and measure again what has been");
    v("yes", yes, "also more than 1,000 runs");
  }
};

// Tests the claim in a file; writes verdict.json, table.csv, samples.csv, runs.csv and picture.svg
// to `out`. Returns 0, 1 if a smoke run found something missing, or 128 + the signal that stopped
// it. Throws if a run failed or `out` has the verdict on another claim.
int judge_file(const StudySettings& s, const std::string& file, const std::string& out, models::StudyVerdict& verdict);

}  // namespace orrery::program
