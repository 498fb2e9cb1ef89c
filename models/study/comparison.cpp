#include "models/study/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/study/metric_names.h"

namespace orrery::models {
namespace {

// Iterates over the steps of a log; merges a validation's row into the row of its step.
class Steps {
 public:
  explicit Steps(const RunLog& log) : reader_(log), next_(reader_.next()) {}
  // Returns false if there are no more.
  bool take(LogRow& step) {
    if (!next_) return false;
    step = *next_;
    while ((next_ = reader_.next()) && next_->step == step.step)
      for (const auto& [name, value] : next_->metrics) step.metrics[name] = value;
    return true;
  }

 private:
  RunLog::Reader reader_;
  const LogRow* next_;
};

using Values = std::vector<std::optional<std::string>>;
bool all_same(const Values& values) {
  return std::all_of(values.begin(), values.end(), [&](const auto& value) { return value == values[0]; });
}

ParameterDifference difference_of(const std::string& name, const Tensor& first, const Tensor& second) {
  const Tensor a = first.to(Dtype::f64), b = second.to(Dtype::f64);
  const double *const x = a.data<double>(), *const y = b.data<double>();
  double squares = 0, square_differences = 0, largest = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double d = x[i] - y[i];
    squares += x[i] * x[i], square_differences += d * d;
    if (!(std::abs(d) <= largest)) largest = std::abs(d);  // keeps NaN
  }
  const double infinite = std::numeric_limits<double>::infinity();
  const double relative = squares != 0 ? std::sqrt(square_differences / squares) : largest == 0 ? 0 : infinite;
  return {name, relative, largest};
}

}  // namespace

std::vector<DifferingSetting> differing_settings(std::span<const TrainSettings> runs) {
  std::vector<DifferingSetting> all, as_written;  // with equal keys
  const auto add = [&](std::vector<DifferingSetting>& to, size_t run, const TrainSettings& settings) {
    for (auto& [key, value] : list_settings(settings)) {
      auto found = std::ranges::find(to, key, &DifferingSetting::key);
      if (found == to.end()) found = to.insert(to.end(), {key, Values(runs.size())});
      found->values[run] = std::move(value);
    }
  };
  for (size_t run = 0; run < runs.size(); ++run) {
    const TrainSettings settings = from_the_beginning(runs[run]);
    add(all, run, resolved(settings)), add(as_written, run, settings);
  }
  std::vector<DifferingSetting> differing;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].key != "out" && !all_same(all[i].values))
      differing.push_back(all_same(as_written[i].values) ? all[i] : as_written[i]);
  return differing;
}

LogComparison compare_logs(const RunLog& first, const RunLog& second) {
  Steps first_steps(first), second_steps(second);
  LogRow one, other;
  LogComparison comparison;
  for (bool both = first_steps.take(one) && second_steps.take(other); both;) {
    if (one.step != other.step) {
      both = one.step < other.step ? first_steps.take(one) : second_steps.take(other);
      continue;
    }
    ++comparison.steps, comparison.last = one.step;
    for (const auto& [name, value] : one.metrics) {
      if (comparison.first_difference >= 0 && comparison.first_difference != one.step) break;
      const auto its = other.metrics.find(name);
      if (is_timing(name) || its == other.metrics.end() || same_bits(value, its->second)) continue;
      comparison.first_difference = one.step;
      comparison.metrics.push_back({name, value, its->second});
    }
    both = first_steps.take(one) && second_steps.take(other);
  }
  std::stable_partition(comparison.metrics.begin(), comparison.metrics.end(),
                        [](const DifferingMetric& metric) { return metric.name.find('/') == std::string::npos; });
  return comparison;
}

ParameterComparison compare_parameters(std::span<const NamedTensor> first, std::span<const NamedTensor> second) {
  std::map<std::string, const Tensor*> others;
  for (const NamedTensor& each : second) others[each.name] = &each.tensor;
  ParameterComparison all;
  for (const auto& [name, tensor] : first) {
    const auto found = others.find(name);
    if (found == others.end()) {
      all.first_alone.push_back(name);
      continue;
    }
    const Tensor& other = *found->second;
    others.erase(found);
    if (tensor.shape() != other.shape()) {
      all.other_shape.push_back(text(name, " ", tensor.shape(), " and ", other.shape()));
      continue;
    }
    const ParameterDifference difference = difference_of(name, tensor, other);
    if (difference.largest == 0)
      all.same.push_back(name);
    else
      all.differing.push_back(difference);
  }
  for (const auto& [name, tensor] : others) all.second_alone.push_back(name);
  std::stable_sort(all.differing.begin(), all.differing.end(), [](const auto& a, const auto& b) {
    if (std::isnan(a.relative) || std::isnan(b.relative)) return std::isnan(a.relative) && !std::isnan(b.relative);
    return a.relative > b.relative;
  });
  return all;
}

}  // namespace orrery::models
