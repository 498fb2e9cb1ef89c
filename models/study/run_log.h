// What a run has logged so far: the rows of its metrics.jsonl.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::models {

struct LogRow {
  int64_t step = 0;
  std::map<std::string, double> figures;  // figures that are not finite are NaN
};

// Rows of `folder`/metrics.jsonl, in order.  A last line without an end, which a run is writing, is left out.  Errors
// name file and line:
//   runs/a/metrics.jsonl:12: 'step' must be a whole number below 2^63
std::vector<LogRow> read_run_log(const std::string& folder);

}  // namespace orrery::models
