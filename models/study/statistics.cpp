#include "models/study/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "engine/types/check.h"

namespace orrery::models {

Spread spread_of(std::span<const double> x) {
  check(!x.empty(), "statistics: no values are given; at least one is required");
  const auto n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0;
  for (const double each : x) squares += (each - mean) * (each - mean);
  return {mean, x.size() > 1 ? std::sqrt(squares / (n - 1)) : 0};
}

double median_of(std::span<const double> x) {
  check(!x.empty(), "statistics: no values are given; at least one is required");
  std::vector<double> all(x.begin(), x.end());
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

std::optional<Interval> confidence_interval(std::span<const double> x, double probability) {
  if (x.size() < 2) return {};
  const auto [mean, deviation] = spread_of(x);
  const double half = student_quantile(probability, static_cast<int>(x.size()) - 1) * deviation /
                      std::sqrt(static_cast<double>(x.size()));
  return Interval{mean, mean - half, mean + half};
}

double student_probability(double t, int degrees) {
  check(degrees >= 1 && t >= 0, "statistics: Student's t with ", degrees, " degrees of freedom at ", t,
        " is undefined; give degrees of at least 1 and t of at least 0");
  const double theta = std::atan(t / std::sqrt(static_cast<double>(degrees))), c = std::cos(theta);
  const bool odd = degrees % 2 == 1;
  double term = odd ? c : 1, sum = degrees == 1 ? 0 : term;
  for (int k = odd ? 3 : 2; k <= degrees - 2; k += 2) {
    term *= c * c * (k - 1) / k;
    sum += term;
  }
  return odd ? 2 / std::numbers::pi * (theta + std::sin(theta) * sum) : std::sin(theta) * sum;
}

double student_quantile(double probability, int degrees) {
  check(probability >= 0 && probability < 1, "statistics: probability ", probability, " must be in [0, 1)");
  double low = 0, high = 1;
  while (student_probability(high, degrees) < probability) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = (low + high) / 2;
    (student_probability(middle, degrees) < probability ? low : high) = middle;
  }
  return high;
}

}  // namespace orrery::models
