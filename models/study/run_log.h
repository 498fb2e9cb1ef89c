// metrics.jsonl of a run, read: what comparisons, exports and outcomes of runs begin with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::models {

struct LogRow {
  int64_t step = 0;
  std::map<std::string, double> figures;  // those that are not finite are NaN
};

bool same_bits(double a, double b);  // or both are NaN

// The rows of `folder`/metrics.jsonl, in their order: of steps (`loss`, ...) and of validations (`validation_loss`,
// ...). A line without its end is still being written and left out.  Errors name the row that is none:
//   runs/a/metrics.jsonl, row 7: line 1, column 9: this is no JSON
std::vector<LogRow> read_run_log(const std::string& folder);

}  // namespace orrery::models
