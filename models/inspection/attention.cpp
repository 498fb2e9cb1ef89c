// Attention weights of each head; rows are queries, columns are keys, then persistent slots.
#include <algorithm>

#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/captured_attention.h"

namespace orrery::models {
namespace {

struct WeightStats {
  double low = 0, high = 0;
  double lowest_sum = INFINITY, highest_sum = -INFINITY;
};
WeightStats weight_stats(const Tensor& weights) {  // (..., columns), NaN where not visible
  WeightStats f;
  const std::vector<double> all = weights.to_vector();
  const auto columns = static_cast<size_t>(weights.size(-1));
  for (size_t row = 0; row < all.size() / columns; ++row) {
    double sum = 0;
    for (size_t k = 0; k < columns; ++k) {
      const double w = all[row * columns + k];
      if (std::isnan(w)) continue;
      sum += w, f.low = std::min(f.low, w), f.high = std::max(f.high, w);
    }
    f.lowest_sum = std::min(f.lowest_sum, sum), f.highest_sum = std::max(f.highest_sum, sum);
  }
  return f;
}

std::string scale_of(const WeightStats& f) {
  if (std::abs(f.lowest_sum - 1) < 1e-3 && std::abs(f.highest_sum - 1) < 1e-3)
    return "The weights of a row add up to 1.";
  return text("The weights of a row add up to between ", significant(f.lowest_sum, 3), " and ",
              significant(f.highest_sum, 3), "; single weights are between ", significant(f.low, 3), " and ",
              significant(f.high, 3), ".");
}

// Returns the weights with NaN where not visible, because 0 is a valid weight.
Tensor visible_weights(const CapturedAttention& captured, int64_t first, int64_t last) {
  const Tensor weights = captured.weights.slice(first, last);
  return where(captured.visible.slice(first, last), weights, Tensor::full_like(weights, {1}, NAN));
}

// Returns a table of the largest |weights| of one head, largest first.
View top_weights(const CapturedAttention& captured, int64_t head, int64_t top, const std::string& title) {
  const std::vector<double> w = captured.weights[head].to_vector();
  std::vector<size_t> order(w.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::erase_if(order, [is_visible = captured.visible[head].to_vector()](size_t i) { return is_visible[i] == 0; });
  const size_t count = std::min(order.size(), static_cast<size_t>(top));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](size_t a, size_t b) { return std::abs(w[a]) != std::abs(w[b]) ? std::abs(w[a]) > std::abs(w[b]) : a < b; });
  TableView table{{"query", "key", "weight"}, "llr", {}};
  for (size_t i = 0; i < count; ++i) {
    const size_t row = order[i] / captured.columns.size(), column = order[i] % captured.columns.size();
    const bool slot = static_cast<int64_t>(column) >= captured.keys;
    table.rows.push_back({text(row, " ", captured.queries[row]),
                          slot ? captured.columns[column] : text(column, " ", captured.columns[column]),
                          fixed(w[order[i]], 4)});
  }
  return {"Attention", "", title, "The largest |weights|.", std::move(table)};
}

// Returns the path without numbers, "blocks.attention" for "blocks.3.attention", to group layers.
std::string kind_of(const std::string& path) {
  std::string kind;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string component = path.substr(begin, end - begin);
    if (component.find_first_not_of("0123456789") != std::string::npos) kind += (kind.empty() ? "" : ".") + component;
    begin = end + 1;
  }
  return kind;
}

bool same_group(const CapturedAttention& a, const CapturedAttention& b) {
  return kind_of(a.path) == kind_of(b.path) && a.weights.shape() == b.weights.shape() && a.columns == b.columns &&
         a.reach.empty() == b.reach.empty();
}

// Returns maps of heads [first, last) of each of these layers.
View map_of(std::span<const CapturedAttention* const> layers, int64_t first, int64_t last) {
  MapView map{.quantity = "weight", .rows = layers[0]->queries, .columns = layers[0]->columns, .values = {}};
  map.axes = {"query", "key"}, map.none = "not visible", map.slots = layers[0]->slots();
  std::vector<Tensor> weights;
  for (const CapturedAttention* const layer : layers) {
    weights.push_back(visible_weights(*layer, first, last));
    const auto rows = static_cast<std::ptrdiff_t>(layer->queries.size());
    if (!layer->reach.empty())
      map.reach.insert(map.reach.end(), layer->reach.begin() + first * rows, layer->reach.begin() + last * rows);
    for (int64_t head = first; head < last; ++head) map.names.push_back(text(layer->path, ", head ", head));
  }
  map.values = concatenate(weights, 0);
  const WeightStats stats = weight_stats(map.values);
  map.has_sign = stats.low < 0;
  if (!map.has_sign) map.low = 0;
  map.sides = {"layer", "head"}, map.grid = {static_cast<int64_t>(layers.size()), last - first};
  std::string caption = "Rows are queries, columns are keys.  " + scale_of(stats);
  if (layers[0]->slots() > 0)
    caption += text("  Persistent slots: the last ", pluralize(layers[0]->slots(), "column"), ".");
  const std::string kind = kind_of(layers[0]->path);
  return {"Attention", "attention/" + kind, map.names.size() == 1 ? map.names[0] : kind, caption, std::move(map)};
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const std::vector<CapturedAttention> all = capture_attentions(example);
  if (all.empty()) return;
  std::vector<const CapturedAttention*> chosen;
  for (const size_t layer : chosen_layers(all.size(), s.layer, "attention modules")) {
    chosen.push_back(&all[layer]);
    check_head(s.head, all[layer].heads(), all[layer].path);
  }
  // A group need not be adjacent: in a decoder, attention and cross attention alternate.
  for (std::vector<const CapturedAttention*> rest = chosen; !rest.empty();) {
    const auto others = std::stable_partition(
        rest.begin(), rest.end(),
        [first = rest[0]](const CapturedAttention* captured) { return same_group(*first, *captured); });
    const int64_t first = std::max<int64_t>(s.head, 0), last = s.head < 0 ? rest[0]->heads() : s.head + 1;
    views.push_back(map_of(std::span(rest.begin(), others), first, last));
    rest.erase(rest.begin(), others);
  }
  for (const CapturedAttention* const captured : chosen)
    for (int64_t head = 0; head < captured->heads(); ++head)
      if (head == s.head || (s.head < 0 && chosen.size() == 1))
        views.push_back(top_weights(*captured, head, s.top, text(captured->path, ", head ", head)));
}

REGISTER_ANALYSIS(attention, {.name = "attention",
                              .description = "attention weights of each head over positions and persistent slots",
                              .analyze = analyze});

}  // namespace
}  // namespace orrery::models
