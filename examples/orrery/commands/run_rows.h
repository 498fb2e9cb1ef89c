// Runs in rows, a run for each seed: what sweeps and studies train, show while it goes on, and write as runs.csv.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/orrery/commands/run_pool.h"
#include "models/formats/output_file.h"

namespace orrery::program {

using Outcomes = std::map<std::string, models::Outcome>;  // by the runs' keys

struct RunRow {
  std::string label;
  std::map<std::string, std::string> key_of_seed;
};

struct RunRows {
  std::vector<RunRow> rows;
  std::vector<PooledRun> runs;
  std::map<std::string, std::pair<std::string, std::string>> named;  // of each key, its row's label and its seed

  // A run of the row with that label, which is new if none has it, under its key (models/study/runs.h).
  void add(const std::string& label, models::TrainSettings settings, const std::string& key);
  std::set<std::string> keys() const;
};

// Names of settings, to find two that are the same run.
class DistinctSettings {
 public:
  // The name under which the same settings were added before; else this one, under which they are added.
  const std::string& add(const models::TrainSettings& settings, const std::string& name);

 private:
  std::map<std::string, std::string> names_;  // by SHA-256
};

// What is shown while runs end: on a terminal the table, drawn again in its place; in a pipe a line a run.
struct RunWords {
  std::function<std::string(const Outcomes&)> table;
  std::function<std::string(const models::Outcome&)> said;  // of a run that is done, such as its loss
};

struct TrainedRows {
  Outcomes outcomes;
  int signal = 0;  // that ended it before all were trained; 0: none
};

// Trains what is missing and prints as above, then warnings of other versions and what was wrong.  `look` is called of
// each run that has ended; if it throws, the others are told to save and end, and the exception goes on.
TrainedRows train_rows(const RunRows& rows, const PoolOptions& options, const RunWords& words,
                       const std::function<void(const PooledRun&, const models::Outcome&)>& look = {});

int64_t count_failed(const Outcomes& outcomes);  // runs; those that diverged are not counted

// An Error that begins with `what` if these are so many runs that --yes is needed.
void check_many_runs(const std::string& what, size_t runs, bool yes);

// What a command leaves in a folder, by the names of the files (models/formats/output_file.h).
struct Outputs {
  std::string command;
  std::map<std::string, models::OutputKind> kinds;

  void check(const std::string& folder) const;
  void write(const std::string& folder, const std::string& name, const std::string& content) const;
};

models::OutputKind runs_csv_kind();
std::string runs_csv(const RunRows& rows, const Outcomes& outcomes);  // a line a run

// The size of a pool, for the end of a sweep or study (orrery runs).
std::string pool_line(const std::string& pool);

}  // namespace orrery::program
