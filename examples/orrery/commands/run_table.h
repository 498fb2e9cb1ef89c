// Rows of runs, one per seed: training, progress and runs.csv of sweeps and studies.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/orrery/commands/run_pool.h"
#include "examples/orrery/terminal/table.h"
#include "models/formats/output_file.h"

namespace orrery::program {

using Outcomes = std::map<std::string, models::Outcome>;  // by run id

struct RunRow {
  std::string label;
  std::map<std::string, std::string> id_of_seed;
};

struct RunRows {
  std::vector<RunRow> rows;
  std::vector<PooledRun> runs;
  std::map<std::string, std::pair<std::string, std::string>> named;  // run id -> its row's label and its seed

  // Adds a run to the row with this label, which is created if missing, under its id.
  void add(const std::string& label, models::TrainSettings settings, const std::string& id);
  std::set<std::string> ids() const;  // of all runs
};

// Finds settings that describe the same run by two names.
class DistinctSettings {
 public:
  // Returns the name of equal settings added before; else adds these under `name` and returns it.
  const std::string& add(const models::TrainSettings& settings, const std::string& name);

 private:
  std::map<std::string, std::string> names_;  // by SHA-256
};

// Texts about runs: the table is redrawn on a terminal while runs end and printed at the end; else
// each run that ends has one line.
struct RunFormatter {
  std::function<Table(const Outcomes&)> table;
  std::function<std::string(const models::Outcome&)> result;  // result of a finished run, such as its loss
};

struct TrainedRuns {
  Outcomes outcomes;
  int signal = 0;  // signal that stopped it; 0: none
};

// Trains missing runs and prints as above, then warnings about versions and errors. Calls
// `on_finished` for each finished run; its exception is rethrown after the other runs save and end.
TrainedRuns train_rows(const RunRows& rows, const PoolOptions& options, const RunFormatter& formatter,
                       const std::function<void(const PooledRun&, const models::Outcome&)>& on_finished = {});

int64_t count_failed(const Outcomes& outcomes);  // without diverged runs

// Throws an error that begins with `what` if this many runs require --yes.
void check_many_runs(const std::string& what, size_t runs, bool yes);

// Output files of a command in its folder, by name (models/formats/output_file.h).
struct Outputs {
  std::string command;
  std::map<std::string, models::OutputKind> kinds;

  // Throws Error if the folder is a run's, or has a file of another kind under one of the names.
  void check(const std::string& folder) const;
  void write(const std::string& folder, const std::string& name, const std::string& content) const;
};

models::OutputKind runs_csv_kind();
std::string runs_csv(const RunRows& rows, const Outcomes& outcomes);  // one line per run

// Returns a line with the size of a pool, for the end of a sweep or study (orrery runs).
std::string pool_line(const std::string& pool);

}  // namespace orrery::program
