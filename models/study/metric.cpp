#include "models/study/metric.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "engine/settings/registry.h"
#include "engine/settings/spec.h"
#include "engine/types/check.h"
#include "models/former_names.h"
#include "models/study/figure_names.h"

namespace orrery::models {
namespace {

using Kind = Metric::Kind;
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
double share_above(const Numbers& x, const Numbers& bound) {
  return static_cast<double>(std::count_if(x.begin(), x.end(), [&](double each) { return each > bound[0]; })) /
         static_cast<double>(x.size());
}

struct Function {
  Kind kind;
  size_t parts;
  double (*of)(const Numbers& x) = nullptr;  // of the module paths, rows or arguments
  double (*of_two)(const Numbers& x,
                   const Numbers& y) = nullptr;  // of the module paths of two metrics, or of one metric and a number
};
const std::map<std::string, Function, std::less<>>& functions() {
  static const std::map<std::string, Function, std::less<>> all = {
      {"max", {Kind::of_places, 1, max_of}},
      {"min", {Kind::of_places, 1, min_of}},
      {"sum", {Kind::of_places, 1, sum_of}},
      {"mean", {Kind::of_places, 1, mean_of}},
      {"above", {Kind::of_places, 2, nullptr, share_above}},
      {"rank_correlation", {Kind::of_places, 2, nullptr, rank_correlation}},
      {"first", {Kind::of_rows, 1, [](const Numbers& x) { return x.front(); }}},
      {"last", {Kind::of_rows, 1, [](const Numbers& x) { return x.back(); }}},
      {"highest", {Kind::of_rows, 1, max_of}},
      {"lowest", {Kind::of_rows, 1, min_of}},
      {"average", {Kind::of_rows, 1, mean_of}},
      {"ratio", {Kind::of_numbers, 2, [](const Numbers& x) { return x[0] / x[1]; }}},
      {"difference", {Kind::of_numbers, 2, [](const Numbers& x) { return x[0] - x[1]; }}},
      {"product", {Kind::of_numbers, 2, [](const Numbers& x) { return x[0] * x[1]; }}},
      {"root", {Kind::of_numbers, 1, [](const Numbers& x) { return std::sqrt(x[0]); }}},
      {"log", {Kind::of_numbers, 1, [](const Numbers& x) { return std::log(x[0]); }}},
      {"slope", {Kind::of_sweep, 1}},
      {"doubling", {Kind::of_sweep, 1}},
      {"power", {Kind::of_sweep, 1}},
      {"growth", {Kind::of_sweep, 1}},
      {"at_first", {Kind::of_sweep, 1}},
      {"at_last", {Kind::of_sweep, 1}},
      {"lowest_at", {Kind::of_sweep, 1}},
      {"highest_at", {Kind::of_sweep, 1}}};
  return all;
}

// `y`: values of the second argument, for a function of two.
double taken_together(const std::string& name, const Numbers& x, const Numbers& y = {}) {
  const auto is_none = [](double each) { return std::isnan(each); };
  if (std::any_of(x.begin(), x.end(), is_none) || std::any_of(y.begin(), y.end(), is_none)) return NAN;  // max hides it
  const Function& function = functions().at(name);
  return function.of ? function.of(x) : function.of_two(x, y);
}

class Parser {
 public:
  Parser(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  Metric whole() {
    constexpr size_t longest = 1000;
    check(text_.size() <= longest, what_, ": the metric has ", text_.size(), " characters; at most ", longest,
          " are allowed; shorten it");
    const Metric all = one(0);
    if (at_ < text_.size()) refuse("continues after its last bracket; remove the rest");
    check_order(all, true);
    return all;
  }

 private:
  Metric one(int depth) {
    constexpr int deepest = 16;
    if (depth > deepest) refuse(text("has brackets nested more than ", deepest, " levels deep"));
    Metric metric;
    metric.name = word();
    if (metric.name.empty()) refuse("has an empty name or argument; give a logged metric, a function or a number");
    if (at_ < text_.size() && text_[at_] == '(') {
      const auto found = functions().find(metric.name);
      if (found == functions().end()) fail_unknown(metric.name);
      metric.kind = found->second.kind;
      do {
        ++at_;
        metric.parts.push_back(one(depth + 1));
      } while (at_ < text_.size() && text_[at_] == ',');
      if (at_ == text_.size() || text_[at_] != ')') refuse("opens a bracket that is not closed; add )");
      ++at_;
      spaces();
      check(metric.parts.size() == found->second.parts, what_, ": ", metric.name, " takes ", found->second.parts,
            found->second.parts == 1 ? " argument" : " arguments", ", not ", metric.parts.size(), ", in '", text_, "'");
      return metric;
    }
    if (functions().contains(metric.name))
      refuse(text("names the function '", metric.name, "' without arguments; write ", metric.name, "(...)"));
    if (metric.name == "swept") {
      metric.kind = Kind::swept;
    } else if (const char first = metric.name[0]; (first >= '0' && first <= '9') || first == '-' || first == '+') {
      metric.kind = Kind::number, metric.value = parse_number(what_, metric.name);
      check(std::isfinite(metric.value), what_, ": ", metric.name, " is not a finite number");
    } else {
      metric.name = with_current_metrics(metric.name);
    }
    return metric;
  }

  // Nesting, from the inside: functions of module paths, of rows, of numbers, of the sweep.
  void check_order(const Metric& metric, bool outermost) const {
    const auto holds = [&](std::initializer_list<Kind> kinds) {
      for (const Metric& part : metric.parts)
        if (std::find(kinds.begin(), kinds.end(), part.kind) == kinds.end())
          refuse(text("has ", print(part), " in ", metric.name, "(...), which takes a logged metric",
                      metric.kind == Kind::of_rows ? ", or max, min, sum or mean of one" : ""));
    };
    if (metric.kind == Kind::of_places && metric.name != "above") holds({Kind::figure});
    if (metric.name == "above" && (metric.parts[0].kind != Kind::figure || metric.parts[1].kind != Kind::number))
      refuse("has wrong arguments of above; write above(METRIC, NUMBER)");
    if (metric.kind == Kind::of_rows) holds({Kind::figure, Kind::of_places});
    if (metric.is_of_sweep() && !outermost)
      refuse(text("has ", metric.name, "(...) inside another function; it must be the outermost one"));
    for (const Metric& part : metric.parts) check_order(part, false);
  }

  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string word() {
    spaces();
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
Numbers places_of(const Metric& part, const LogRow& row) {
  if (part.kind == Kind::number) return {part.value};
  Numbers places;
  for (const auto& [name, value] : row.figures)
    if (matches_metric(part.name, name)) places.push_back(value);
  return places;
}

// Returns one value per row that has the metric, reduced over the module paths.
Numbers over_rows(const Metric& metric, const RunLog& log) {
  const bool told = metric.kind == Kind::of_places, two = metric.parts.size() == 2;
  const Metric& figure = told ? metric.parts[0] : metric;
  Numbers all;
  log.each([&](const LogRow& row) {
    const Numbers places = places_of(figure, row), others = two ? places_of(metric.parts[1], row) : places;
    if (!places.empty() && !others.empty()) all.push_back(taken_together(told ? metric.name : "mean", places, others));
  });
  for (const std::string& pattern : metric.figures())
    if (all.empty()) fitting_figures("study", figure_names(log), pattern);  // throws; the error lists the names
  check(!all.empty(), "study: no row of the log has all metrics of '", print(metric), "'");
  return all;
}

double number_of(const Metric& metric, const RunLog& log, double swept) {
  switch (metric.kind) {
    case Kind::number:
      return metric.value;
    case Kind::swept:
      return swept;
    case Kind::figure:
    case Kind::of_places:
      return over_rows(metric, log).back();
    case Kind::of_rows:
      return taken_together(metric.name, over_rows(metric.parts[0], log));
    case Kind::of_sweep:
      return number_of(metric.parts[0], log, swept);
    case Kind::of_numbers:
      break;
  }
  Numbers parts;
  for (const Metric& part : metric.parts) parts.push_back(number_of(part, log, swept));
  return taken_together(metric.name, parts);
}

// sum (x - mean x)(y - mean y) / sum (x - mean x)^2
double least_squares_slope(const Numbers& x, const Numbers& y) {
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double products = 0, squares = 0;
  for (size_t i = 0; i < x.size(); ++i)
    products += (x[i] - mean_x) * (y[i] - mean_y), squares += (x[i] - mean_x) * (x[i] - mean_x);
  return products / squares;
}

double checked(const Metric& metric, double x) {
  check(std::isfinite(x), "study: ", print(metric), " is ", x, "; it must be a finite number");
  return x;
}

}  // namespace

bool Metric::uses_swept() const {
  return kind == Kind::swept || std::any_of(parts.begin(), parts.end(), [](const auto& p) { return p.uses_swept(); });
}

std::vector<std::string> Metric::figures() const {
  std::vector<std::string> all;
  if (kind == Kind::figure) all.push_back(name);
  for (const Metric& part : parts)
    for (std::string& each : part.figures())
      if (std::find(all.begin(), all.end(), each) == all.end()) all.push_back(std::move(each));
  return all;
}

Metric parse_metric(std::string_view what, std::string_view text) { return Parser(what, text).whole(); }

std::string print(const Metric& metric) {
  if (metric.parts.empty()) return metric.name;
  std::vector<std::string> parts;
  for (const Metric& part : metric.parts) parts.push_back(print(part));
  return metric.name + "(" + join(parts) + ")";
}

double measure(const Metric& metric, const RunLog& log, double swept) {
  return checked(metric.is_of_sweep() ? metric.parts[0] : metric, number_of(metric, log, swept));
}

void check_measurable(const Metric& metric, const RunLog& log) { number_of(metric, log, 1); }

double measure_sweep(const Metric& metric, std::span<const double> swept, std::span<const double> measured) {
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
