#include "models/inspection/base/targets.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/loops/loops.h"
#include "engine/types/check.h"

namespace orrery::models {

size_t Targets::last() const {
  for (size_t row = by_row.size(); row-- > 0;)
    if (by_row[row] >= 0) return row;
  fail("inspect: the example has no target; give a longer one");
}

Targets targets_of(const InspectedExample& example, const Tensor& logits) {
  Targets targets{example.targets(), true};
  if (std::any_of(targets.by_row.begin(), targets.by_row.end(), [](int32_t target) { return target >= 0; }))
    return targets;
  targets.known = false, targets.by_row.clear();
  for (int64_t row = 0; row < logits.size(0); ++row) targets.by_row.push_back(most_likely(logits[row].to_vector()));
  return targets;
}

namespace {
CpuRow loops_of(std::span<const double> row) { return {static_cast<int>(row.size())}; }
}  // namespace

double log_probability(std::span<const double> row, int32_t target) {
  const auto largest_and_total = loops_of(row).exponentials(In<double>{row.data()});
  return row[static_cast<size_t>(target)] - largest_and_total[0] - std::log(largest_and_total[1]);
}

std::vector<double> log_probabilities(const Tensor& logits, std::span<const int32_t> targets) {
  const std::vector<double> all = logits.to_vector();
  const auto width = static_cast<size_t>(logits.size(1));
  std::vector<double> each;
  for (size_t row = 0; row < targets.size(); ++row)
    each.push_back(targets[row] < 0 ? NAN : log_probability(std::span(all).subspan(row * width, width), targets[row]));
  return each;
}

double loss_of(const Tensor& logits, std::span<const int32_t> targets) {
  const std::vector<double> each = log_probabilities(logits, targets);
  double sum = 0, count = 0;
  for (size_t row = 0; row < targets.size(); ++row)
    if (targets[row] >= 0) sum -= each[row], ++count;
  return sum / count;  // 0 / 0 = NaN without targets
}

int32_t most_likely(std::span<const double> row) {
  const double largest = loops_of(row).max([](double z) { return z; }, In<double>{row.data()});
  if (std::isnan(largest)) return 0;
  return static_cast<int32_t>(std::find(row.begin(), row.end(), largest) - row.begin());
}

int64_t rank_of(std::span<const double> row, int32_t target) {
  const double own = row[static_cast<size_t>(target)];
  return 1 + std::count_if(row.begin(), row.end(), [&](double z) { return z > own; });
}

std::vector<int32_t> largest(std::span<const double> row, int64_t count) {
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = std::min(order.size(), static_cast<size_t>(std::max<int64_t>(count, 0)));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    [&](int32_t a, int32_t b) {
                      const double x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  order.resize(kept);
  return order;
}

InspectedExample::Labels row_labels(const InspectedExample& example, const std::string& path, int64_t rows) {
  const InspectedExample::Labels& labels = example.position_labels(path);
  if (static_cast<int64_t>(labels.size()) == rows) return labels;
  return InspectedExample::Labels(static_cast<size_t>(rows), "whole example");
}

}  // namespace orrery::models
