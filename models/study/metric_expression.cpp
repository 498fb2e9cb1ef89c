#include "models/study/metric_expression.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/types/ascii.h"
#include "engine/types/check.h"
#include "models/former_names.h"
#include "models/study/metric_names.h"

namespace orrery::models {
namespace {

using Kind = MetricExpression::Kind;
using Numbers = std::vector<double>;

double mean_of(const Numbers& x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }
double max_of(const Numbers& x) { return *std::max_element(x.begin(), x.end()); }
double min_of(const Numbers& x) { return *std::min_element(x.begin(), x.end()); }
double sum_of(const Numbers& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

// Returns ranks from 1; equal values share the mean of their ranks.
Numbers ranks_of(const Numbers& x) {
  Numbers ranks;
  for (const double each : x) {
    const auto below = std::count_if(x.begin(), x.end(), [&](double other) { return other < each; });
    const auto equal = std::count(x.begin(), x.end(), each);
    ranks.push_back(static_cast<double>(below) + static_cast<double>(equal + 1) / 2);
  }
  return ranks;
}
// sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean y)^2), of ranks; NaN if either is constant.
double rank_correlation(const Numbers& a, const Numbers& b) {
  check(a.size() == b.size(), "study: rank correlation of ", a.size(), " with ", b.size(),
        " values; both metrics must have the same module paths");
  const Numbers x = ranks_of(a), y = ranks_of(b);
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i)
    xy += (x[i] - mean_x) * (y[i] - mean_y), xx += (x[i] - mean_x) * (x[i] - mean_x),
        yy += (y[i] - mean_y) * (y[i] - mean_y);
  return xy / std::sqrt(xx * yy);
}
double fraction_above(const Numbers& x, const Numbers& bound) {
  return static_cast<double>(std::count_if(x.begin(), x.end(), [&](double each) { return each > bound[0]; })) /
         static_cast<double>(x.size());
}

struct Function {
  Kind kind;
  size_t arguments;
  double (*of)(const Numbers& x) = nullptr;  // of the module paths, rows or arguments
  double (*of_two)(const Numbers& x,
                   const Numbers& y) = nullptr;  // of the module paths of two metrics, or of one metric and a number
};
const std::map<std::string, Function, std::less<>>& functions() {
  static const std::map<std::string, Function, std::less<>> all = {
      {"max", {Kind::over_modules, 1, max_of}},
      {"min", {Kind::over_modules, 1, min_of}},
      {"sum", {Kind::over_modules, 1, sum_of}},
      {"mean", {Kind::over_modules, 1, mean_of}},
      {"above", {Kind::over_modules, 2, nullptr, fraction_above}},
      {"rank_correlation", {Kind::over_modules, 2, nullptr, rank_correlation}},
      {"first", {Kind::over_steps, 1, [](const Numbers& x) { return x.front(); }}},
      {"last", {Kind::over_steps, 1, [](const Numbers& x) { return x.back(); }}},
      {"highest", {Kind::over_steps, 1, max_of}},
      {"lowest", {Kind::over_steps, 1, min_of}},
      {"average", {Kind::over_steps, 1, mean_of}},
      {"ratio", {Kind::of_numbers, 2, [](const Numbers& x) { return x[0] / x[1]; }}},
      {"difference", {Kind::of_numbers, 2, [](const Numbers& x) { return x[0] - x[1]; }}},
      {"product", {Kind::of_numbers, 2, [](const Numbers& x) { return x[0] * x[1]; }}},
      {"root", {Kind::of_numbers, 1, [](const Numbers& x) { return std::sqrt(x[0]); }}},
      {"log", {Kind::of_numbers, 1, [](const Numbers& x) { return std::log(x[0]); }}},
      {"slope", {Kind::over_sweep, 1}},
      {"doubling", {Kind::over_sweep, 1}},
      {"power", {Kind::over_sweep, 1}},
      {"growth", {Kind::over_sweep, 1}},
      {"at_first", {Kind::over_sweep, 1}},
      {"at_last", {Kind::over_sweep, 1}},
      {"lowest_at", {Kind::over_sweep, 1}},
      {"highest_at", {Kind::over_sweep, 1}}};
  return all;
}

// `y`: values of the second argument, for a function of two.
double apply_function(const std::string& name, const Numbers& x, const Numbers& y = {}) {
  const auto is_none = [](double each) { return std::isnan(each); };
  if (std::any_of(x.begin(), x.end(), is_none) || std::any_of(y.begin(), y.end(), is_none)) return NAN;  // max hides it
  const Function& function = functions().at(name);
  return function.of ? function.of(x) : function.of_two(x, y);
}

class Parser {
 public:
  Parser(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  MetricExpression parse() {
    constexpr size_t max_length = 1000;
    check(text_.size() <= max_length, what_, ": the metric has ", text_.size(), " characters; at most ", max_length,
          " are allowed; shorten it");
    const MetricExpression all = parse_expression(0);
    if (at_ < text_.size()) refuse("continues after its last bracket; remove the rest");
    check_order(all, true);
    return all;
  }

 private:
  MetricExpression parse_expression(int depth) {
    constexpr int max_depth = 16;
    if (depth > max_depth) refuse(text("has brackets nested more than ", max_depth, " levels deep"));
    MetricExpression metric;
    metric.name = parse_name();
    if (metric.name.empty()) refuse("has an empty name or argument; give a logged metric, a function or a number");
    if (at_ < text_.size() && text_[at_] == '(') {
      const auto found = functions().find(metric.name);
      if (found == functions().end()) fail_unknown(metric.name);
      metric.kind = found->second.kind;
      do {
        ++at_;
        metric.arguments.push_back(parse_expression(depth + 1));
      } while (at_ < text_.size() && text_[at_] == ',');
      if (at_ == text_.size() || text_[at_] != ')') refuse("opens a bracket that is not closed; add )");
      ++at_;
      skip_spaces();
      check(metric.arguments.size() == found->second.arguments, what_, ": ", metric.name, " takes ",
            found->second.arguments, found->second.arguments == 1 ? " argument" : " arguments", ", not ",
            metric.arguments.size(), ", in '", text_, "'");
      return metric;
    }
    if (functions().contains(metric.name))
      refuse(text("names the function '", metric.name, "' without arguments; write ", metric.name, "(...)"));
    if (metric.name == "swept") {
      metric.kind = Kind::swept;
    } else if (const char first = metric.name[0]; is_digit(first) || first == '-' || first == '+') {
      metric.kind = Kind::number, metric.value = parse_number(what_, metric.name);
      check(std::isfinite(metric.value), what_, ": ", metric.name, " is not a finite number");
    } else {
      metric.name = with_current_metrics(metric.name);
    }
    return metric;
  }

  // Nesting, from the inside: functions of module paths, of rows, of numbers, of the sweep.
  void check_order(const MetricExpression& metric, bool outermost) const {
    const auto check_kinds = [&](std::initializer_list<Kind> kinds) {
      for (const MetricExpression& argument : metric.arguments)
        if (std::find(kinds.begin(), kinds.end(), argument.kind) == kinds.end())
          refuse(text("has ", print(argument), " in ", metric.name, "(...), which takes a logged metric",
                      metric.kind == Kind::over_steps ? ", or max, min, sum or mean of one" : ""));
    };
    if (metric.kind == Kind::over_modules && metric.name != "above") check_kinds({Kind::logged});
    if (metric.name == "above" &&
        (metric.arguments[0].kind != Kind::logged || metric.arguments[1].kind != Kind::number))
      refuse("has wrong arguments of above; write above(METRIC, NUMBER)");
    if (metric.kind == Kind::over_steps) check_kinds({Kind::logged, Kind::over_modules});
    if (metric.is_of_sweep() && !outermost)
      refuse(text("has ", metric.name, "(...) inside another function; it must be the outermost one"));
    for (const MetricExpression& argument : metric.arguments) check_order(argument, false);
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string parse_name() {
    skip_spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '(' && text_[at_] != ')' && text_[at_] != ',') ++at_;
    size_t end = at_;
    while (end > begin && text_[end - 1] == ' ') --end;
    return std::string(text_.substr(begin, end - begin));
  }
  [[noreturn]] void refuse(std::string_view how) const { fail(what_, ": the metric '", text_, "' ", how); }
  [[noreturn]] void fail_unknown(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& [known, function] : functions()) names.push_back(known);
    const std::string meant = nearest(name, names);
    fail(what_, ": unknown function '", name, "' in '", text_, "'; ",
         meant.empty() ? "functions are " + join(names) : "did you mean '" + meant + "'?");
  }

  std::string_view what_, text_;
  size_t at_ = 0;
};

// Returns a metric's values at all matching module paths of a row, or the number itself.
Numbers module_values(const MetricExpression& argument, const LogRow& row) {
  if (argument.kind == Kind::number) return {argument.value};
  Numbers values;
  for (const auto& [name, value] : row.metrics)
    if (matches_metric(argument.name, name)) values.push_back(value);
  return values;
}

// Returns one value per row that has the metric, reduced over the module paths.
Numbers over_rows(const MetricExpression& metric, const RunLog& log) {
  const bool is_reduced = metric.kind == Kind::over_modules, two = metric.arguments.size() == 2;
  const MetricExpression& metric_of_rows = is_reduced ? metric.arguments[0] : metric;
  Numbers all;
  log.each([&](const LogRow& row) {
    const Numbers values = module_values(metric_of_rows, row),
                  others = two ? module_values(metric.arguments[1], row) : values;
    if (!values.empty() && !others.empty())
      all.push_back(apply_function(is_reduced ? metric.name : "mean", values, others));
  });
  for (const std::string& pattern : metric.patterns())
    if (all.empty()) matching_metrics("study", metric_names(log), pattern);  // throws; the error lists the names
  check(!all.empty(), "study: no row of the log has all metrics of '", print(metric), "'");
  return all;
}

double value_of(const MetricExpression& metric, const RunLog& log, double swept) {
  switch (metric.kind) {
    case Kind::number:
      return metric.value;
    case Kind::swept:
      return swept;
    case Kind::logged:
    case Kind::over_modules:
      return over_rows(metric, log).back();
    case Kind::over_steps:
      return apply_function(metric.name, over_rows(metric.arguments[0], log));
    case Kind::over_sweep:
      return value_of(metric.arguments[0], log, swept);
    case Kind::of_numbers:
      break;
  }
  Numbers arguments;
  for (const MetricExpression& argument : metric.arguments) arguments.push_back(value_of(argument, log, swept));
  return apply_function(metric.name, arguments);
}

// sum (x - mean x)(y - mean y) / sum (x - mean x)^2
double least_squares_slope(const Numbers& x, const Numbers& y) {
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double products = 0, squares = 0;
  for (size_t i = 0; i < x.size(); ++i)
    products += (x[i] - mean_x) * (y[i] - mean_y), squares += (x[i] - mean_x) * (x[i] - mean_x);
  return products / squares;
}

double checked(const MetricExpression& metric, double x) {
  check(std::isfinite(x), "study: ", print(metric), " is ", x, "; it must be a finite number");
  return x;
}

}  // namespace

bool MetricExpression::uses_swept() const {
  return kind == Kind::swept ||
         std::any_of(arguments.begin(), arguments.end(), [](const auto& p) { return p.uses_swept(); });
}

std::vector<std::string> MetricExpression::patterns() const {
  std::vector<std::string> all;
  if (kind == Kind::logged) all.push_back(name);
  for (const MetricExpression& argument : arguments)
    for (std::string& each : argument.patterns())
      if (std::find(all.begin(), all.end(), each) == all.end()) all.push_back(std::move(each));
  return all;
}

MetricExpression parse_metric(std::string_view what, std::string_view text) { return Parser(what, text).parse(); }

std::string print(const MetricExpression& metric) {
  if (metric.arguments.empty()) return metric.name;
  std::vector<std::string> arguments;
  for (const MetricExpression& argument : metric.arguments) arguments.push_back(print(argument));
  return metric.name + "(" + join(arguments) + ")";
}

double measure(const MetricExpression& metric, const RunLog& log, double swept) {
  return checked(metric.is_of_sweep() ? metric.arguments[0] : metric, value_of(metric, log, swept));
}

void check_measurable(const MetricExpression& metric, const RunLog& log) { value_of(metric, log, 1); }

double measure_sweep(const MetricExpression& metric, std::span<const double> swept, std::span<const double> measured) {
  Numbers x(swept.begin(), swept.end()), y(measured.begin(), measured.end());
  check(metric.is_of_sweep() && x.size() == y.size() && x.size() > 1, "study: ", print(metric), " has ", x.size(),
        " swept and ", y.size(), " measured values; the numbers must be equal and at least 2");
  if (metric.name == "at_first") return y.front();
  if (metric.name == "at_last") return y.back();
  if (metric.name == "growth") return checked(metric, y.back() / y.front());
  if (metric.name == "lowest_at") return x[static_cast<size_t>(std::min_element(y.begin(), y.end()) - y.begin())];
  if (metric.name == "highest_at") return x[static_cast<size_t>(std::max_element(y.begin(), y.end()) - y.begin())];
  if (metric.name != "slope")
    for (double& each : x) each = metric.name == "doubling" ? std::log2(each) : std::log(each);
  if (metric.name == "power")
    for (double& each : y) each = std::log(each);
  return checked(metric, least_squares_slope(x, y));
}

}  // namespace orrery::models
