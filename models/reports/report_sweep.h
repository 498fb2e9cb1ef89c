// The report of a sweep, from its folder's table.csv, runs.csv and sweep.json.
#pragma once

#include <string>

#include "models/reports/report.h"

namespace orrery::models {

// Returns whether the folder has a table.csv and a runs.csv.
bool is_sweep_folder(const std::string& folder);
// A line of runs.csv.
struct TabledRun {
  std::string row, seed, id, outcome;
};
// Returns a sweep's runs, none if there are no tables. Throws if a sweep did not write them.
std::vector<TabledRun> runs_in_tables(const std::string& folder);

// Appends paired differences as bars and a table, all runs, their curves if they are in the pool,
// and the command. Throws if a table is not a sweep's.
void add_sweep(Json& sections, const std::string& folder);
// Appends the runs of runs.csv, and curves of their losses and `metric` if they are in the pool.
void add_trained_runs(Json& sections, const std::string& folder, const std::string& pool, const std::string& metric);

}  // namespace orrery::models
