// What a sweep has compared: its folder's table.csv, runs.csv and sweep.json.
#pragma once

#include <string>

#include "models/reports/report.h"

namespace orrery::models {

// A sweep's folder has a table.csv and a runs.csv.
bool is_sweep_folder(const std::string& folder);
// A line of runs.csv.
struct TabledRun {
  std::string row, seed, id, outcome;
};
// The runs of a sweep's folder; none if it has no tables. Throws if a file of that name was not written by a sweep.
std::vector<TabledRun> runs_in_tables(const std::string& folder);

// Appends the paired differences, as bars and as a table, every run, its curves as far as they are in the pool, and
// the command.  An Error if a table is not one of a sweep.
void add_sweep(Json& sections, const std::string& folder);
// The runs of the folder's runs.csv, and the curves of their losses and of `metric` as far as they are in the pool.
void add_trained_runs(Json& sections, const std::string& folder, const std::string& pool, const std::string& metric);

}  // namespace orrery::models
