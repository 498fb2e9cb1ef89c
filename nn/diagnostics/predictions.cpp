#include "nn/diagnostics/predictions.h"

#include <cmath>
#include <numbers>

namespace orrery::nn {
namespace {

std::vector<Predict>& all_predictions() {
  static std::vector<Predict> all;
  return all;
}

}  // namespace

bool add_prediction(Predict predict) {
  all_predictions().push_back(predict);
  return true;
}

std::vector<Prediction> predictions_of(const Module& module, const InputStats& stats) {
  std::vector<Prediction> all;
  for (const Predict predict : all_predictions())
    for (Prediction& one : predict(module, stats)) all.push_back(std::move(one));
  return all;
}

// The density beyond 10 standard deviations is below 1e-22. If f jumps between two points of the
// rule, the error is at most the probability of one step, 4e-4, times the jump.
double mean_square(double v, const std::function<double(double x)>& f) {
  constexpr int steps = 20000;
  constexpr double reach = 10, h = 2 * reach / steps;
  const double deviation = std::sqrt(v);
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double z = -reach + h * i, y = f(deviation * z);
    sum += y * y * std::exp(-z * z / 2);
  }
  return sum * h / std::sqrt(2 * std::numbers::pi);
}

double softmax_sum_of_squares(double v, double n) { return (1 + std::expm1(v) * (1 - 1 / n)) / n; }

Prediction predicted_softmax_output(const InputStats& stats) {
  const double v = stats.row_variance;
  return {ratio::head_output,
          mean_over(stats.queries, [&](const QueryGroup& group) { return softmax_sum_of_squares(v, group.keys); }),
          "exp(v) / n", v};
}

}  // namespace orrery::nn
