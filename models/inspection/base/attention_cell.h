// One attention weight, with the values on the way to it from its query and key, in f64.
//   score = cap(scale <q, k> + position)         cap(x) = c tanh(x / c)
//   weight = function span factor / total        of a row rule, such as sparsemax: no function
// q and k enter the product: normalized, rotated, divided by a temperature, or mapped by the features of linear
// attention. The names of the hooks are in engine/autograd/hooks.h.
#pragma once

#include <optional>

#include "models/inspection/base/captured_attention.h"

namespace orrery::models {

struct AttentionCell {
  std::vector<double> query, key;  // per channel
  double product = 0;              // <q, k>
  double scale = 1, position = 0, cap = 0;
  double score = 0;  // as captured
  std::vector<double> row_scores;  // of all keys; minus infinity where hidden
  bool visible = true;
  int64_t visible_keys = 0;  // number that the query may attend to, slots included
  // Softmax: the largest score of the row, and the sum of exp(score - largest) span. Linear attention that divides:
  // the sum of the scores.
  std::optional<double> largest, total;
  std::optional<double> function;  // exp(score - largest), or F(score)
  std::optional<double> span, factor;  // factors by the span's ramp and by the length
  double weight = 0;  // as captured

  double computed_score() const;
  double computed_weight() const;  // NaN of a row rule
};
// Returns the cell of a captured attention: a head, a query and a column of the weights.
AttentionCell attention_cell(const InspectedExample& example, const CapturedAttention& attention, int64_t head,
                             int64_t query, int64_t column);

}  // namespace orrery::models
