// Tests one claim: trains or times its runs and writes the results to a folder.
#pragma once

#include <string>

#include "engine/settings/config.h"
#include "models/study/verdict_file.h"

namespace orrery::program {

struct StudySettings {
  std::string out, runs = "runs/pool", all, data;
  int64_t jobs = 0;
  bool test = true, smoke = false, retrain = false, yes = false;

  template <class V>
  void visit(V& v) {
    v("out", out,
      "folder for the results; if not given, runs/studies/NAME for NAME.toml, with --all the folder of the claims");
    v("runs", runs, "folder of the runs that sweeps and studies share; each run is trained once");
    v("all", all, "folder of claims, also in subfolders: test each new or changed one, and list all verdicts");
    v("test|judge", test, "no: with --all, only list the verdicts so far");
    v("data", data, "folder of the data sets that claims name, as images/fashion-mnist");
    v("jobs", jobs,
      "runs in parallel (0: one per core, with one thread each); runs of a claim about time take turns instead",
      between(0, 1024));
    v("smoke", smoke, "only check that it runs: one seed, one learning rate, two variants, two steps; no verdict");
    v("retrain|fresh", retrain, "train and measure all runs again");
    v("yes", yes, "allow more than 1,000 runs");
  }
};

// Tests the claim in a file; writes verdict.json, table.csv, samples.csv, runs.csv and samples.svg
// to `out`. Returns 0, 1 if a smoke run found something missing, or 128 + the signal that stopped
// it. Throws if a run failed or `out` has the verdict on another claim.
int test_claim_file(const StudySettings& s, const std::string& file, const std::string& out,
                    models::StudyVerdict& verdict);

}  // namespace orrery::program
