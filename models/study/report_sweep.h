// What a sweep has compared: its folder's table.csv, runs.csv and sweep.json.
#pragma once

#include <string>

#include "models/study/report.h"

namespace orrery::models {

// A sweep's folder has a table.csv and a runs.csv.
bool is_sweep_folder(const std::string& folder);
// Appends the paired differences, as bars and as a table, every run, its curves as far as they are in the pool, and
// the command.  An Error if a table is not one of a sweep.
void add_sweep(Json& sections, const std::string& folder);

}  // namespace orrery::models
