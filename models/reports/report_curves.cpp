#include "models/reports/report_curves.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/settings/spec.h"
#include "engine/types/ascii.h"
#include "engine/types/format.h"
#include "models/reports/report.h"

namespace orrery::models {
namespace {

constexpr size_t max_page_points = 150'000, max_curve_points = 2'000,
                 min_curve_points = 200;  // points of a page or a curve, about 14 bytes each

struct Series {
  std::string name, key;
  size_t run = 0, rows = 0, not_finite = 0;
  Curve curve = {};
};
struct Chart {
  std::string metric, group;
  std::vector<Series> series;
};

bool is_loss(const std::string& key) { return key == "loss" || key == "training_loss" || key == "validation_loss"; }

// Returns the chart of a key and its line in the chart: the metric, with '/' if it has module
// paths, and the path. Validation keys such as span.0.mean are split at '.' and get their own
// chart, since steps may log the same metric.
std::pair<std::string, std::string> metric_and_path(const std::string& key) {
  if (is_loss(key)) return {"loss", key};
  size_t cut = key.find('/');
  for (size_t i = 0; cut == std::string::npos && i + 1 < key.size(); ++i)
    if (key[i] == '.' && is_digit(key[i + 1])) cut = i;
  if (cut == std::string::npos) return {key, key};
  return {key.substr(0, cut + 1), key.substr(cut + 1)};
}
bool has_paths(const std::string& metric) { return metric.ends_with('/') || metric.ends_with('.'); }

// Natural order: blocks.2 before blocks.10.
bool natural_less(const std::string& a, const std::string& b) {
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (!is_digit(a[i]) || !is_digit(b[k])) {
      if (a[i] != b[k]) return a[i] < b[k];
      ++i, ++k;
      continue;
    }
    size_t end_a = i, end_b = k;
    while (end_a < a.size() && is_digit(a[end_a])) ++end_a;
    while (end_b < b.size() && is_digit(b[end_b])) ++end_b;
    if (end_a - i != end_b - k) return end_a - i < end_b - k;
    const int order = a.compare(i, end_a - i, b, k, end_b - k);
    if (order != 0) return order < 0;
    i = end_a, k = end_b;
  }
  return a.size() < b.size();
}

// Calls take(step, key, value) for each shown metric of each row.
void each_metric(const LoggedRun& run, const auto& take) {
  run.log.each([&](const LogRow& row) {
    for (const auto& [key, value] : row.metrics)
      if (run.metrics.empty() || run.metrics.contains(key)) take(row.step, key, value);
  });
}

std::vector<Chart> charts_of(std::span<const LoggedRun> runs) {
  struct Count {
    size_t rows = 0, not_finite = 0;
  };
  std::vector<Chart> charts;
  std::map<std::string, size_t> chart_indices;  // chart index of each metric
  for (size_t r = 0; r < runs.size(); ++r) {
    std::map<std::string, Count> counts;
    each_metric(runs[r], [&](int64_t, const std::string& key, double value) {
      Count& count = counts[key];
      ++count.rows, count.not_finite += std::isnan(value);
    });
    for (const auto& [key, count] : counts) {
      const auto [metric, path] = metric_and_path(key);
      const auto [at, is_new] = chart_indices.emplace(metric, charts.size());
      if (is_new) charts.push_back({metric, has_paths(metric) ? "Curves by module" : "Curves", {}});
      const std::string name = has_paths(metric) ? path : key == "loss" ? "loss of each step" : humanize(path);
      charts[at->second].series.push_back({name, key, r, count.rows, count.not_finite});
    }
  }
  const auto rank = [](const Chart& c) { return c.metric == "loss" ? 0 : has_paths(c.metric) ? 2 : 1; };
  std::sort(charts.begin(), charts.end(), [&](const Chart& a, const Chart& b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.metric < b.metric;
  });
  for (Chart& chart : charts)
    std::stable_sort(chart.series.begin(), chart.series.end(),
                     [](const Series& a, const Series& b) { return natural_less(a.key, b.key); });
  return charts;
}

// Rounds to 7 digits, more than a plot resolves, to halve the text.
Json short_number(double x) {
  if (!std::isfinite(x)) return nullptr;
  if (x == std::floor(x) && std::abs(x) < 1e15) return static_cast<int64_t>(x);
  return parse_number("report", significant(x, 7));
}

}  // namespace

void ThinnedCurve::keep(const Point& point) {
  curve_.steps.push_back(point.step);
  curve_.values.push_back(point.value);
}

void ThinnedCurve::add(int64_t step, double value) {
  const Point point{step, value, at_++};
  if (points_ <= max_points_) return keep(point);
  const size_t buckets = max_points_ / 2;
  if (point.at == end_) {  // the next group begins
    end_ = points_ * ++bucket_ / buckets;
    smallest_ = largest_ = point, not_finite_ = false;
  }
  if (!not_finite_ && std::isnan(value)) smallest_ = largest_ = point, not_finite_ = true;
  if (!not_finite_ && value < smallest_.value) smallest_ = point;
  if (!not_finite_ && value >= largest_.value) largest_ = point;
  if (at_ < end_) return;
  const bool in_order = smallest_.at < largest_.at;
  keep(in_order ? smallest_ : largest_);
  if (smallest_.at != largest_.at) keep(in_order ? largest_ : smallest_);
}

Curve thinned(const Curve& curve, size_t max_points) {
  ThinnedCurve thin(curve.steps.size(), max_points);
  for (size_t i = 0; i < curve.steps.size(); ++i) thin.add(curve.steps[i], curve.values[i]);
  return thin.curve();
}

namespace {

void add_points(std::vector<Chart>& charts, std::span<const LoggedRun> runs, size_t max_points) {
  for (size_t r = 0; r < runs.size(); ++r) {
    std::map<std::string, ThinnedCurve> curves;
    for (const Chart& chart : charts)
      for (const Series& series : chart.series)
        if (series.run == r) curves.emplace(series.key, ThinnedCurve(series.rows, max_points));
    each_metric(runs[r], [&](int64_t step, const std::string& key, double value) { curves.at(key).add(step, value); });
    for (Chart& chart : charts)
      for (Series& series : chart.series)
        if (series.run == r) series.curve = curves.at(series.key).curve();
  }
}

}  // namespace

void add_curves(Json& sections, std::span<const LoggedRun> runs) {
  std::vector<Chart> charts = charts_of(runs);
  size_t curves = 0;
  for (const Chart& chart : charts) curves += chart.series.size();
  const size_t max_points =
      std::clamp(max_page_points / std::max<size_t>(1, curves), min_curve_points, max_curve_points);
  add_points(charts, runs, max_points);
  Json names = Json::array();
  std::string changed;
  for (const LoggedRun& run : runs) {
    names.push_back({{"name", run.name}, {"group", run.group}});
    if (run.data_since == 0) continue;
    names.back()["since"] = run.data_since;
    changed += text(changed.empty() ? "" : " ", "The data of ", run.name, " changed at step ",
                    with_commas(run.data_since), "; its lowest values are of later steps.");
  }
  for (const Chart& chart : charts) {
    Json all = Json::array();
    bool thin = false;
    size_t not_finite = 0;
    for (const Series& series : chart.series) {
      const Curve& curve = series.curve;
      thin |= curve.steps.size() < series.rows;
      not_finite += series.not_finite;
      Json values = Json::array();
      for (const double x : curve.values) values.push_back(short_number(x));
      all.push_back({{"name", series.name},
                     {"key", series.key},
                     {"run", series.run},
                     {"rows", series.rows},
                     {"steps", curve.steps},
                     {"values", std::move(values)}});
    }
    const std::string metric = has_paths(chart.metric) ? chart.metric.substr(0, chart.metric.size() - 1) : chart.metric;
    const std::string title = humanize(metric) + (chart.metric.ends_with('.') ? " at validations" : "");
    std::string caption;
    if (thin)
      caption = text("Curves of more than ", max_points, " rows show the smallest and largest value of each interval.");
    if (not_finite > 0)
      caption +=
          text(caption.empty() ? "" : " ", not_finite, not_finite == 1 ? " value is" : " values are", " not finite.");
    if (!changed.empty()) caption += (caption.empty() ? "" : " ") + changed;
    sections.push_back(report_section(chart.group, "curves", title, caption,
                                      {{"quantity", metric}, {"runs", names}, {"thinned", thin}, {"series", all}}));
  }
}

}  // namespace orrery::models
