// What a study has found: its folder's verdict.json, table.csv and runs.csv.
#pragma once

#include <string>

#include "models/reports/report.h"

namespace orrery::models {

// A study's folder has a verdict.json.
bool is_study_folder(const std::string& folder);
// Appends the claim and its verdict, the paired differences as bars, what was measured, every run with its curves, and
// the command.  An Error if a file is not one of a study.
void add_study(Json& sections, const std::string& folder);

}  // namespace orrery::models
