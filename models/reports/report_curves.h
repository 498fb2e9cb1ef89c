// Logged metrics as charts.
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
  std::vector<double> values;  // NaN if not finite
};

// A curve that keeps at most `max_points` (4 or more) of `points` points added in order: the
// smallest and largest of each of max_points / 2 equal groups, so that peaks stay. A non-finite
// point replaces both. Keeps all if there are fewer than `max_points`.
class ThinnedCurve {
 public:
  ThinnedCurve(size_t points, size_t max_points) : points_(points), max_points_(max_points) {}
  void add(int64_t step, double value);
  const Curve& curve() const { return curve_; }  // once all points are added

 private:
  struct Point {
    int64_t step = 0;
    double value = 0;
    size_t at = 0;
  };
  void keep(const Point& point);

  size_t points_, max_points_, at_ = 0, bucket_ = 0, end_ = 0;
  bool not_finite_ = false;  // in this group
  Point smallest_, largest_;
  Curve curve_;
};

Curve thinned(const Curve& curve, size_t max_points);

struct LoggedRun {
  std::string name, group;  // runs of one group have one colour
  RunLog log;
  std::set<std::string> metrics = {};  // names to plot; empty: all
  int64_t data_since = 0;              // step at which the data changed; lowest values are of later steps
};

// Appends a `curves` section per metric: first the losses together, then metrics without a module
// path, then metrics of components, metric/path, with a line per module path. data:
//   {"quantity": "gradient_norm", "series": [{"name": ..., "key": ..., "run": 0, "rows": 600, "steps": [...],
//    "values": [...]}], "runs": [{"name": ..., "group": ...}], "thinned": false}
// `rows` counts the log's rows before thinning. A run whose data changed has "since", the step.
// The curves of report_views.cpp also have "axis", the name of an axis other than steps, and
// "x_labels", if present, the labels of 0, 1, ... on it.
void add_curves(Json& sections, std::span<const LoggedRun> runs);

}  // namespace orrery::models
