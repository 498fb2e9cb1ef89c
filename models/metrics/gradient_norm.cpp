// Gradient norm over the parameters of each component of a model, before clipping.
#include <algorithm>
#include <cmath>

#include "engine/types/ascii.h"
#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

// Returns the component: "blocks.0.attention.output.weight" belongs to blocks.0.attention,
// "head.weight" to head. It ends with the name after the last number, or else with the first name.
std::string component_of(const std::string& path) {
  std::vector<std::string> names;
  size_t numbered = 0;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    names.push_back(path.substr(at, end - at));
    if (std::all_of(names.back().begin(), names.back().end(), is_digit)) numbered = names.size();
    at = end + 1;
  }
  std::string component = names[0];
  for (size_t i = 1; i <= numbered && i < names.size(); ++i) component += "." + names[i];
  return component;
}

void log_gradient_norms(MetricRow& row, const nn::FlatParameters& parameters) {
  std::vector<IndexRange> ranges;
  for (const nn::FlatParameters::Segment& segment : parameters.segments())
    ranges.push_back({segment.begin, segment.end});
  const Tensor& gradients = parameters.gradients();
  const std::vector<double> sums = nn::SquareSums(gradients, ranges).of(gradients).to_vector();
  MetricRow squares;
  for (size_t i = 0; i < sums.size(); ++i) squares[component_of(parameters.segments()[i].path)] += sums[i];
  for (const auto& [component, sum] : squares) log_metric(row, "gradient_norm", component, std::sqrt(sum));
}

REGISTER_METRIC(gradient_norm, {.name = "gradient_norm",
                                .description = "gradient norm of the parameters of each component, before clipping",
                                .is_default = true,
                                .of_parameters = log_gradient_norms});

}  // namespace
}  // namespace orrery::models
