#include "models/study/example_metrics.h"

#include <algorithm>
#include <optional>
#include <set>

#include "engine/types/format.h"
#include "models/study/statistics.h"

namespace orrery::models {
namespace {

// A metric's name is KIND/COMPONENT: "heads/entropy" and
// "blocks.0.attention.3"; or ANALYSIS/KIND.
std::string kind_of(const std::string& name) {
  const size_t first = name.find('/'), second = name.find('/', first + 1);
  return name.substr(0, second);
}
std::string component_of(const std::string& name) {
  const std::string kind = kind_of(name);
  return name.size() > kind.size() ? name.substr(kind.size() + 1) : name.substr(name.find('/') + 1);
}
std::string group_of(const std::string& kind) {
  std::string group = kind.substr(0, kind.find('/'));
  std::replace(group.begin(), group.end(), '_', ' ');
  group[0] = static_cast<char>(group[0] - 'a' + 'A');
  return group;
}
std::string title_of(const std::string& kind) {
  std::string title = kind.substr(kind.find('/') + 1);
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

// Returns the names of each kind, kinds and names in their order.
std::vector<std::pair<std::string, std::vector<std::string>>> by_kind(std::span<const std::string> names) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const std::string& name : names) {
    const std::string kind = kind_of(name);
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == kind; });
    if (found == all.end())
      all.push_back({kind, {name}});
    else
      found->second.push_back(name);
  }
  return all;
}

}  // namespace

void ExampleMetrics::add(const std::string& example, std::span<const View> views) {
  const size_t before = examples_.size();
  examples_.push_back(example);
  for (const View& view : views) {
    for (const auto& [name, value] : view.metrics) {
      if (std::isnan(value)) continue;
      std::vector<double>& values = values_[name];
      if (values.empty()) order_.push_back(name);
      values.resize(before, NAN), values.push_back(value);
    }
    for (const auto& [name, value] : view.chance)
      if (!std::isnan(value)) chance_[name].push_back(value);
  }
}

std::vector<double> ExampleMetrics::present(const std::string& name) const {
  std::vector<double> values = values_.at(name);
  std::erase_if(values, [](double value) { return std::isnan(value); });
  return values;
}

std::vector<std::pair<std::string, double>> ExampleMetrics::means() const {
  std::vector<std::pair<std::string, double>> all;
  for (const std::string& name : order_) all.emplace_back(name, spread_of(present(name)).mean);
  return all;
}

std::vector<View> ExampleMetrics::values() const {
  std::vector<View> all;
  for (const auto& [kind, names] : by_kind(order_)) {
    MapView map{.quantity = title_of(kind), .rows = {}, .columns = examples_, .values = {}};
    std::vector<double> values;
    for (const std::string& name : names) {
      map.rows.push_back(component_of(name));
      values.insert(values.end(), values_.at(name).begin(), values_.at(name).end());
      values.resize(map.rows.size() * examples_.size(), NAN);
    }
    map.axes = {"component", "example"};
    map.values = Tensor::from(Shape{1, static_cast<int64_t>(names.size()), static_cast<int64_t>(examples_.size())},
                              values, Dtype::f64);
    all.push_back({group_of(kind), kind + "/examples", title_of(kind), "", std::move(map)});
  }
  return all;
}

std::vector<View> ExampleMetrics::views() const {
  std::vector<View> all;
  for (auto& [kind, names] : by_kind(order_)) {
    if (kind == "ablation/without")  // the largest effect first, as for one example
      std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return spread_of(present(a)).mean > spread_of(present(b)).mean;
      });
    TableView table{{"", "mean", "deviation", "95 % from", "to", "examples"}, "lrrrrr", {}};
    BarView bars{"mean", {}};
    const bool has_chance =
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return chance_.contains(name); });
    if (has_chance) table.columns.push_back("chance"), table.alignment += 'r';
    std::vector<std::pair<std::string, double>> metrics;
    for (const std::string& name : names) {
      const std::vector<double> values = present(name);
      const Spread spread = spread_of(values);
      const std::optional<Interval> interval = confidence_interval(values);
      const bool has_deviation = values.size() > 1;
      metrics.emplace_back(name, spread.mean);
      if (has_deviation) metrics.emplace_back(name + "/deviation", spread.deviation);
      if (interval)
        metrics.emplace_back(name + "/low", interval->low), metrics.emplace_back(name + "/high", interval->high);
      table.rows.push_back({component_of(name), significant(spread.mean, 4),
                            has_deviation ? significant(spread.deviation, 3) : "-",
                            interval ? significant(interval->low, 4) : "-",
                            interval ? significant(interval->high, 4) : "-", std::to_string(values.size())});
      bars.bars.push_back({.name = component_of(name), .value = spread.mean});
      if (interval) bars.bars.back().low = interval->low, bars.bars.back().high = interval->high;
      if (!has_chance) continue;
      const auto chance = chance_.find(name);
      const double level = chance == chance_.end() ? NAN : spread_of(chance->second).mean;
      table.rows.back().push_back(std::isnan(level) ? "-" : significant(level, 4));
      if (!std::isnan(level))
        metrics.emplace_back(name + "/chance", level), bars.bars.back().note = "chance " + significant(level, 3);
    }
    all.push_back(
        {group_of(kind), "", title_of(kind) + " over the examples", "", std::move(table), false, std::move(metrics)});
    all.push_back({group_of(kind), "", title_of(kind) + ": means and intervals", "", std::move(bars), true});
  }
  return all;
}

std::vector<View> metrics_by_step(std::span<const StepMetrics> steps) {
  std::vector<std::string> order;
  std::set<std::string> known;
  std::vector<std::map<std::string, double>> values;
  for (const StepMetrics& at : steps) {
    values.emplace_back();
    for (const auto& [name, value] : at.metrics) {
      values.back()[name] = value;
      if (known.insert(name).second) order.push_back(name);
    }
  }
  std::vector<View> all;
  for (const auto& [kind, names] : by_kind(order)) {
    TableView table{{"step"}, "r", {}};
    LineView lines{"step", title_of(kind), {}};
    for (const StepMetrics& at : steps) table.rows.push_back({std::to_string(at.step)});
    std::vector<std::pair<std::string, double>> metrics;
    for (const std::string& name : names) {
      table.columns.push_back(component_of(name)), table.alignment += 'r';
      LineView::Line line{component_of(name), {}, {}};
      for (size_t i = 0; i < steps.size(); ++i) {
        const auto found = values[i].find(name);
        const bool has_value = found != values[i].end() && !std::isnan(found->second);
        table.rows[i].push_back(has_value ? significant(found->second, 4) : "-");
        if (!has_value) continue;
        line.x.push_back(static_cast<double>(steps[i].step)), line.y.push_back(found->second);
        metrics.emplace_back(text(name, "/step_", steps[i].step), found->second);
      }
      lines.lines.push_back(std::move(line));
    }
    all.push_back({group_of(kind), "", title_of(kind) + " by step", "", std::move(table), false, std::move(metrics)});
    all.push_back({group_of(kind), kind, title_of(kind) + " by step", "", std::move(lines), true});
  }
  return all;
}

}  // namespace orrery::models
