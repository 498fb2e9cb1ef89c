// Single learned numbers: alpha of DyT, slopes, temperatures, exponents, gains.
#include <cmath>

#include "engine/types/format.h"
#include "models/metrics/base/model_metric.h"

namespace orrery::models {
namespace {

constexpr int64_t max_elements = 64;  // elements; no model has more heads

// Biases of queries and keys alone are named `query_bias` and `key_bias`.
bool is_weight_or_bias(const std::string& name) {
  return name == "weight" || name == "bias" || name.ends_with("_bias");
}

// Logs parameters that are neither weights nor biases nor spans, which have their own metric:
// log_gamma as gamma, and those that all layers share as the model's. Several of an activation, by
// head, are activation/PATH.HEAD.PARAMETER.
void log_parameters(MetricRow& row, const nn::FlatParameters& parameters) {
  const std::string logarithm = "log_";
  for (const nn::FlatParameters::Segment& segment : parameters.segments()) {
    const size_t dot = segment.path.rfind('.');
    std::string name = segment.path.substr(dot + 1);
    const std::string path = dot == std::string::npos ? "model" : segment.path.substr(0, dot);
    if (segment.end - segment.begin > max_elements || is_weight_or_bias(name) || segment.parameter->lr_group == "spans")
      continue;
    std::vector<double> values = segment.parameter->value.to_vector();
    if (name.starts_with(logarithm)) {
      name.erase(0, logarithm.size());
      for (double& value : values) value = std::exp(value);
    }
    const Shape& shape = segment.parameter->value.shape();
    const bool by_head = name.ends_with("activation") && shape.rank() == 2 && shape[1] > 1;
    if (values.size() == 1)
      log_metric(row, name, path, values[0]);
    else if (!by_head)
      log_metrics(row, name, path, values);
    else
      for (size_t i = 0, n = static_cast<size_t>(shape[1]); i < values.size(); ++i)
        log_metric(row, name, text(path, ".", i / n, ".", i % n), values[i]);
  }
}

REGISTER_METRIC(parameters,
                {.name = "parameters",
                 .description = "learned parameters other than weights and biases, by name: alpha, temperature, "
                                "activation (parameters of an activation), ...",
                 .owners = "components with such parameters, as in --normalization=dyt",
                 .is_default = true,
                 .of_parameters = log_parameters});

}  // namespace
}  // namespace orrery::models
