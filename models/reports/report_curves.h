// What runs have logged, as charts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/formats/json.h"
#include "models/study/run_log.h"

namespace orrery::models {

struct Curve {
  std::vector<int64_t> steps;
  std::vector<double> values;  // NaN where it is not finite
};

// A curve that keeps at most `most` (4 or more) of its `points`, which are added in order: the least and
// the largest of each of most / 2 spans of equally many points, so that no peak is lost. A point that is
// not finite is kept in their place. With fewer points than `most`, all are kept.
class ThinnedCurve {
 public:
  ThinnedCurve(size_t points, size_t most) : points_(points), most_(most) {}
  void add(int64_t step, double value);
  const Curve& curve() const { return curve_; }  // once all points have come

 private:
  struct Point {
    int64_t step = 0;
    double value = 0;
    size_t at = 0;
  };
  void keep(const Point& point);

  size_t points_, most_, at_ = 0, bucket_ = 0, end_ = 0;
  bool not_finite_ = false;  // in this bucket
  Point least_, largest_;
  Curve curve_;
};

Curve thinned(const Curve& curve, size_t most);

struct LoggedRun {
  std::string name, group;  // runs of one group have one colour
  RunLog log;
  std::set<std::string> shown = {};  // figures; empty: all
};

// Appends a section of kind `curves` for each figure: the losses together, then what stands alone, then figures of
// parts, named figure/place, with a line for each place.  data:
//   {"figure": "gradient_norm", "series": [{"name": ..., "key": ..., "run": 0, "rows": 600, "steps": [...],
//    "values": [...]}], "runs": [{"name": ..., "group": ...}], "thinned": false}
// and "axis", a word, if they do not stand over steps, with "places", the names of 0, 1, ... on it, if they have some.
// `rows` counts what the log has, which are more than the points of a series that was thinned.
void add_curves(Json& sections, std::span<const LoggedRun> runs);

}  // namespace orrery::models
