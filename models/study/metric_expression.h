// A metric expression: the quantity that a claim measures, as text:
//
//   validation_loss                           a metric of metrics.jsonl, from the last row that has it
//   entropy/blocks.*.attention.*              the mean over the matching module paths (* ? [ab] as in file names)
//   max(...)  min(...)  sum(...)  mean(...)   over the module paths in one row
//   above(..., 2.9)                           the fraction of module paths whose value is above a number
//   rank_correlation(..., ...)                Spearman's, of two metrics over their module paths, ordered by name
//   first(...)  highest(...)  lowest(...)  average(...)  last(...)    over the rows that have the metric
//   ratio(a, b)  difference(a, b)  product(a, b)  root(a)  log(a)     of these, of 0.25, or of `swept`, the swept value
//   slope(a)     slope of the least-squares line of a over the swept values
//   doubling(a)  gain of a per doubling of the swept value: slope of a over log2
//   power(a)     the exponent p of a ~ value^p: slope of log a over log
//   growth(a)    a at the last swept value divided by a at the first one
//   at_first(a)  at_last(a)   a at the first, the last swept value
//   lowest_at(a)  highest_at(a)   the first swept value at which a is lowest, highest
//   diverged     1 if the run diverged, else 0
//
// Functions over the sweep must be outermost. Metrics of analyses (`orrery list analysis`), such
// as heads/induction/*, are computed from the trained model and the claim's example; few_shot/NAME
// is the accuracy of linear probes on it, for the data set NAME of the claim's table [few_shot].
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/study/run_log.h"

namespace orrery::models {

struct MetricExpression {
  enum class Kind { logged, number, swept, over_modules, over_steps, of_numbers, over_sweep };
  Kind kind = Kind::logged;
  std::string name;  // pattern of a logged metric by its current name, name of a function, or text of a number
  double value = 0;  // if `kind` is number
  std::vector<MetricExpression> arguments;

  bool is_of_sweep() const { return kind == Kind::over_sweep; }
  bool uses_swept() const;                    // `swept` occurs as a number
  std::vector<std::string> patterns() const;  // patterns, each once
};

// Errors begin with `what`:
//   claim.toml:7: unknown function 'slop' in 'slop(loss)'; did you mean 'slope'?
MetricExpression parse_metric(std::string_view what, std::string_view text);
std::string print(const MetricExpression& metric);  // parse_metric parses the result

// Returns the value for one run; of a metric over the sweep, the value of its argument. Throws if
// the rows lack a metric (the error offers the nearest name) or the value is not finite.
double measure(const MetricExpression& metric, const RunLog& log, double swept);
// Throws if the rows lack a metric that the expression needs; accepts any value.
void check_measurable(const MetricExpression& metric, const RunLog& log);
// Returns a metric over the sweep from the values measured at it. Throws if it is not finite.
double measure_sweep(const MetricExpression& metric, std::span<const double> swept, std::span<const double> measured);

}  // namespace orrery::models
