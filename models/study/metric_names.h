// Names of logged metrics, and their selection by patterns.
#pragma once

#include <string>
#include <vector>

#include "models/study/run_log.h"

namespace orrery::models {

std::vector<std::string> metric_names(const RunLog& log);  // all in the log, each once; block2 before block10

// Returns the names that match one of `patterns`, a comma-separated list with * ? [ab] as in file
// names; former names match too. An empty list selects all. Throws if a pattern matches nothing;
// the message begins with `command`:
//   metrics: no metric matches 'los'; did you mean 'loss'?
std::vector<std::string> matching_metrics(const std::string& command, const std::vector<std::string>& names,
                                          const std::string& patterns);

// Returns true for metrics that depend on the time taken: step_ms, tokens_per_second, mfu.
bool is_timing(const std::string& metric);

}  // namespace orrery::models
