#include "models/inspection/base/targets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
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

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Eight chains instead of one, which would wait for each comparison and addition; compilers make vectors of them.
using Chains = std::array<double, 8>;

double maximum(std::span<const double> row) {
  Chains largest;
  largest.fill(-infinity);
  size_t i = 0;
  for (; i + largest.size() <= row.size(); i += largest.size())
    for (size_t k = 0; k < largest.size(); ++k) largest[k] = std::max(largest[k], row[i + k]);
  for (; i < row.size(); ++i) largest[0] = std::max(largest[0], row[i]);
  return *std::max_element(largest.begin(), largest.end());
}

// Returns the sum of exp(z - largest) over a row.
double sum_of_exponentials(std::span<const double> row, double largest) {
  constexpr size_t chunk = 64;  // loops of a fixed length become vectors at -O2, too
  std::array<double, chunk> terms;
  Chains sums{};
  for (size_t first = 0; first < row.size(); first += chunk) {
    const auto some = row.subspan(first, std::min(chunk, row.size() - first));
    std::fill(std::copy(some.begin(), some.end(), terms.begin()), terms.end(), -infinity);
    for (size_t i = 0; i < chunk; ++i) terms[i] = orrery::scalar::exp(terms[i] - largest);
    for (size_t i = 0; i < chunk; i += sums.size())
      for (size_t k = 0; k < sums.size(); ++k) sums[k] += terms[i + k];
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

double log_probability(std::span<const double> row, int32_t target) {
  const double largest = maximum(row);
  return row[static_cast<size_t>(target)] - largest - std::log(sum_of_exponentials(row, largest));
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
  return static_cast<int32_t>(std::find(row.begin(), row.end(), maximum(row)) - row.begin());
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
