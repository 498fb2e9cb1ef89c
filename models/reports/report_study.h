// The report of a study, from its folder's verdict.json, table.csv and runs.csv.
#pragma once

#include <string>

#include "models/reports/report.h"

namespace orrery::models {

// Returns whether the folder has a verdict.json.
bool is_study_folder(const std::string& folder);
// Appends the claim and its verdict, paired differences as bars, measurements, all runs with
// curves, and the command. Throws if a file is not a study's.
void add_study(Json& sections, const std::string& folder);

}  // namespace orrery::models
