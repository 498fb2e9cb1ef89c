// Statistics of values over several seeds, and of differences of two variants that share the seeds.
#pragma once

#include <optional>
#include <span>

namespace orrery::models {

struct Spread {
  double mean = 0, deviation = 0;  // of a sample: sqrt(sum (x - mean)^2 / (n - 1)); 0 if n = 1
};
Spread spread_of(std::span<const double> x);  // not empty

double median_of(std::span<const double> x);  // not empty; for even n the upper of the middle two

struct Interval {
  double mean = 0, low = 0, high = 0;
};
// Returns mean +- t s / sqrt(n), with t of n - 1 degrees of freedom, which contains the mean with
// this probability. None if n < 2.
std::optional<Interval> confidence_interval(std::span<const double> x, double probability = 0.95);

// P(|T| <= t) of Student's t with a whole number of degrees of freedom n, by theta = atan(t / sqrt n), c = cos theta:
//   n odd   2/pi (theta + sin theta (c + 2/3 c^3 + ... + (2 4 ... (n-3)) / (3 5 ... (n-2)) c^(n-2)))
//   n even  sin theta (1 + 1/2 c^2 + ... + (1 3 ... (n-3)) / (2 4 ... (n-2)) c^(n-2))
// Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
double student_probability(double t, int degrees);
double student_quantile(double probability, int degrees);  // t >= 0 with this probability, by bisection

}  // namespace orrery::models
