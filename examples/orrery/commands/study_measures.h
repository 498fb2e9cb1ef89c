// The metrics of a claim's trained runs: their logs, and what is measured with their weights.
#pragma once

#include <string>

#include "models/study/claim.h"
#include "models/study/run_log.h"
#include "models/study/runs.h"

namespace orrery::program {

// Returns a path of data; if there is none, that in the folder of data sets, then that near the
// claim; "" if there is none either.
std::string find_path(const std::string& path, const std::string& claim, const std::string& folder);
// Returns a metric's rows. A derived claim uses only step 1, logged before its update; an edited model has none of the
// rows of its training.
models::RunLog rows_of(const models::Claim& claim, const models::Variant& variant, const std::string& folder,
                       const models::Outcome& outcome, const std::string& data);
// Throws if the claim's inputs are unreadable or do not fit the outcome.
void check_measured(const models::Claim& claim, const std::string& folder, const models::Outcome& outcome);
// Throws if a metric is missing. The error explains how to enable a registered metric.
void check_metrics(const models::Claim& claim, const std::string& variant, const models::RunLog& rows);
// Throws if a model with the variants' settings lacks what their edits name. Call it before the runs are trained.
void check_edits(const models::Claim& claim, const std::string& data);
// Throws if the data of [few_shot] cannot be read or have too few examples. Call it before the runs are trained.
void check_few_shot_sets(const models::Claim& claim, const std::string& data);

}  // namespace orrery::program
