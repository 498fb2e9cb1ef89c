#include "models/inspection/base/attention_cell.h"

#include <array>
#include <cmath>
#include <numeric>

namespace orrery::models {
namespace {

// The captured values of one attention by name.
using Values = std::map<std::string, Tensor>;

Values values_of(const InspectedExample& example, const std::string& path) {
  Values values;
  std::vector<std::string> patterns;
  for (const char* name : {"score_*", "slot_score_*", "scores", "slot_scores", "weight_*", "slot_weight_*"})
    patterns.push_back(path + "." + name);
  capture_values(example, patterns, [&](const std::string&, const std::string& name, const Tensor& value) {
    values[name] = to_cpu(value);
  });
  return values;
}

// Returns one element of a value (B, H, Tq, columns), whose axes may have size 1, or (1); none if it was not captured.
std::optional<double> element(const Values& values, const std::string& name, std::array<int64_t, 3> at) {
  const auto found = values.find(name);
  if (found == values.end()) return {};
  Tensor x = found->second[0];
  for (size_t i = 0; x.shape().rank() > 0; ++i) x = x[x.size(0) == 1 ? 0 : at[i]];
  return x.item();
}

}  // namespace

double AttentionCell::computed_score() const {
  const double x = scale * product + position;
  return cap > 0 ? cap * std::tanh(x / cap) : x;
}
double AttentionCell::computed_weight() const {
  if (!visible) return 0;
  if (!function) return NAN;
  const double sum = total.value_or(1);
  return sum == 0 ? 0 : *function * span.value_or(1) * factor.value_or(1) / sum;
}

AttentionCell attention_cell(const InspectedExample& example, const CapturedAttention& attention, int64_t head,
                             int64_t query, int64_t column) {
  const Values values = values_of(example, attention.path);
  AttentionCell cell;
  const std::vector<double> visible = attention.visible[head][query].to_vector();
  cell.visible = visible[static_cast<size_t>(column)] > 0;
  cell.visible_keys = static_cast<int64_t>(std::accumulate(visible.begin(), visible.end(), 0.0));
  cell.weight = attention.weights[head][query].to_vector()[static_cast<size_t>(column)];
  const bool split = column >= values.at("scores").size(3);  // slots with separate weights
  const std::string prefix = split ? "slot_" : "";
  if (split) column -= values.at("scores").size(3);
  const auto value = [&](const char* name) { return element(values, prefix + name, {head, query, column}); };
  cell.query = values.at(prefix + "score_query")[0][head][query].to_vector();
  cell.key = values.at(prefix + "score_key")[0][head][column].to_vector();
  cell.product = std::inner_product(cell.query.begin(), cell.query.end(), cell.key.begin(), 0.0);
  cell.scale = value("score_scale").value(), cell.cap = value("score_cap").value();
  cell.position = value("score_position").value_or(0), cell.score = value("scores").value();
  cell.largest = value("weight_largest"), cell.total = value("weight_total"), cell.function = value("weight_function");
  cell.row_scores = values.at(prefix + "scores")[0][head][query].to_vector();
  for (size_t j = 0; !split && j < cell.row_scores.size(); ++j)
    if (visible[j] == 0) cell.row_scores[j] = -INFINITY;
  cell.span = value("weight_span"), cell.factor = value("weight_factor");
  return cell;
}

}  // namespace orrery::models
