#include "models/inspection/base/targets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/math/scalar.h"
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

double log_probability(std::span<const double> row, int32_t target, int32_t top) {
  const double largest = row[static_cast<size_t>(top)];
  // At -O2 loops of a fixed length over arrays become vectors, and std::exp would be a call each.  One chain of
  // additions would wait for each of them.
  std::array<double, 64> terms, sums{};
  size_t first = 0;
  for (; first + terms.size() <= row.size(); first += terms.size()) {
    const double* const z = row.data() + first;
    for (size_t i = 0; i < terms.size(); ++i) terms[i] = orrery::scalar::exp(z[i] - largest);
    for (size_t i = 0; i < terms.size(); ++i) sums[i] += terms[i];
  }
  for (size_t i = 0; first + i < row.size(); ++i) sums[i] += orrery::scalar::exp(row[first + i] - largest);
  const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
  return row[static_cast<size_t>(target)] - largest - std::log(total);
}

std::vector<double> log_probabilities(const Tensor& logits, std::span<const int32_t> targets) {
  const std::vector<double> all = logits.to_vector();
  const auto width = static_cast<size_t>(logits.size(1));
  std::vector<double> each;
  for (size_t row = 0; row < targets.size(); ++row)
    if (targets[row] < 0) {
      each.push_back(NAN);
    } else {
      const auto z = std::span(all).subspan(row * width, width);
      each.push_back(log_probability(z, targets[row], most_likely(z)));
    }
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
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
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
