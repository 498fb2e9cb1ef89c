// What runs have logged, as charts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "models/json.h"
#include "models/study/run_log.h"

namespace orrery::models {

struct Curve {
  std::vector<int64_t> steps;
  std::vector<double> values;  // NaN where it is not finite
};

// At most `most` (4 or more) points of it: in each of most / 2 spans of equally many points the least and the largest
// one, so that no peak is lost.  One that is not finite stands in place of them.  Of fewer points all.
Curve thinned(const Curve& curve, size_t most);

struct LoggedRun {
  std::string name, group;  // runs of one group have one colour
  std::vector<LogRow> log;
};

// Appends a section of kind `curves` for each figure: the losses together, then what stands alone, then figures of
// parts, named figure/place, with a line for each place.  data:
//   {"figure": "gradient_norm", "series": [{"name": ..., "key": ..., "run": 0, "rows": 600, "steps": [...],
//    "values": [...]}], "runs": [{"name": ..., "group": ...}], "thinned": false}
// and "axis", a word, if they do not stand over steps, with "places", the names of 0, 1, ... on it, if they have some.
// `rows` counts what the log has, which are more than the points of a series that was thinned.
void add_curves(Json& sections, std::span<const LoggedRun> runs);

}  // namespace orrery::models
