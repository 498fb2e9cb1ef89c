// What a claim measures of runs, written as a text:
//
//   validation_loss                           a figure of metrics.jsonl, of the last row that has it
//   entropy/blocks.*.attention.*              several places of a figure (* ? [ab] as in file names): their mean
//   max(...)  min(...)  sum(...)  mean(...)   of the places of one row
//   above(..., 2.9)                           the share of its places that are above a number
//   rank_correlation(..., ...)                Spearman's, of two figures over their places, in the order of their names
//   first(...)  highest(...)  lowest(...)  average(...)  last(...)    over the rows that have the figure
//   ratio(a, b)  difference(a, b)  product(a, b)  root(a)  log(a)     of such, of 0.25, or of `swept`, the swept value
//   slope(a)     over the swept key: of the least-squares line of a over its values
//   doubling(a)  what a gains each time that the swept value doubles: slope of a over log2
//   power(a)     the exponent p of a ~ value^p: slope of log a over log
//   growth(a)    a at the last swept value over a at the first one
//   at_first(a)  at_last(a)   a at the first, the last swept value
//   lowest_at(a)  highest_at(a)   the swept value at which a is lowest, highest; of equals the first
//   diverged     1 of a run that diverged, else 0
//
// Those over the swept key stand outermost.  Figures of looks inside (`orrery list looks`), as
// heads/induction/*, are those of the trained model and the claim's example.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/study/run_log.h"

namespace orrery::models {

struct Metric {
  enum class Kind { figure, number, swept, of_places, of_rows, of_numbers, of_sweep };
  Kind kind = Kind::figure;
  std::string name;  // of a figure its pattern, else the function's; of a number its text
  double value = 0;  // of a number
  std::vector<Metric> parts;

  bool is_of_sweep() const { return kind == Kind::of_sweep; }
  bool uses_swept() const;                   // as a number
  std::vector<std::string> figures() const;  // patterns, each once
};

// Errors begin with `what`:
//   claim.toml:7: unknown function 'slop' in 'slop(loss)'; did you mean 'slope'?
Metric parse_metric(std::string_view what, std::string_view text);
std::string print(const Metric& metric);  // parse_metric reads it back

// Of one run; of a metric over a sweep, what stands in it.  Errors: a figure that the rows do not have, with the
// nearest name; a number that is not finite.
double measure(const Metric& metric, const RunLog& log, double swept);
// An Error unless the rows have what the metric is measured of, whatever number that is.
void check_measurable(const Metric& metric, const RunLog& log);
// Of a metric over a sweep: from the swept values and what was measured at each.  An Error if it is no finite number.
double measure_sweep(const Metric& metric, std::span<const double> swept, std::span<const double> measured);

}  // namespace orrery::models
