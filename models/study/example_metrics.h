// Metrics of analyses over many examples, and by the checkpoints of a run.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/inspection/base/view.h"

namespace orrery::models {

class ExampleMetrics {
 public:
  void add(const std::string& example, std::span<const View> views);  // the views' metrics and levels of chance
  bool empty() const { return order_.empty(); }
  bool has_chance() const { return !chance_.empty(); }  // a level of chance is known of some metric
  // Returns a table for each kind of metric, "heads/entropy": mean, standard deviation over the
  // examples, Student's 95 % interval of the mean, level of chance. A metric that some examples lack is
  // summarized over the others. The views' metrics are NAME (the mean), NAME/deviation, NAME/low,
  // NAME/high and NAME/chance.
  std::vector<View> views() const;
  std::vector<View> values() const;  // for each kind a map of components and examples, KIND/examples
  std::vector<std::pair<std::string, double>> means() const;

 private:
  std::vector<double> present(const std::string& name) const;  // the values of the examples that have it

  std::vector<std::string> examples_, order_;          // order_: names of metrics, by their first example
  std::map<std::string, std::vector<double>> values_;  // by name, an element for each example; NaN: none
  std::map<std::string, std::vector<double>> chance_;
};

struct StepMetrics {
  int64_t step;
  std::vector<std::pair<std::string, double>> metrics;
};
// Returns for each kind of metric a table and lines by step. The metrics of the views are NAME/step_N.
std::vector<View> metrics_by_step(std::span<const StepMetrics> steps);

}  // namespace orrery::models
