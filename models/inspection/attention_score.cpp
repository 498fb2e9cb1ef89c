// One attention weight, step by step: how a query and a key give a score, and the score a weight.
//   1  q and k, as vectors, and the channels whose products q_d k_d are the largest
//   2  score = scale <q, k>, plus what the position adds (alibi, relative), capped by c tanh(x / c)
//   3  the mask: a hidden key has weight 0
//   4  the weight: function span factor / total (models/inspection/base/attention_cell.h)
//        softmax              exp(score - largest) / sum of the row; subtracting the largest score changes no weight
//        pointwise, naive     F(score) L^-alpha
//        relu_former          F(score) / (gamma sqrt(n / 2))
//        rela                 F(score)
//        linear               the score of mapped q and k, over the sum of the row with normalize=yes
//        sparsemax, entmax15  a rule for the whole row; the scores of keys with and without weight bound its threshold
// The span's ramp multiplies function in the sum, too. Which weight: --layer, --head, --position (the query) and --key
// (a key, or a column of a slot behind them); by default the largest |weight| of the last query.
#include <algorithm>

#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "models/inspection/base/attention_cell.h"
#include "models/inspection/base/targets.h"

namespace orrery::models {
namespace {

struct Place {
  const CapturedAttention* attention = nullptr;
  int64_t head = 0, query = 0, column = 0;
  std::string label() const {
    const auto k = static_cast<size_t>(column);
    const bool slot = column >= attention->keys;
    const std::string& of_query = attention->queries[static_cast<size_t>(query)];
    const std::string& label = attention->columns[k];
    return text(attention->path, " head ", head, ", query ", query, " '", of_query, "', ",
                slot ? label : text("key ", column, " '", label, "'"));
  }
};

int64_t queries_of(const CapturedAttention& attention) { return static_cast<int64_t>(attention.queries.size()); }
int64_t columns_of(const CapturedAttention& attention) { return static_cast<int64_t>(attention.columns.size()); }

// Returns the chosen place of one head: s.key, or the column of the largest |weight|.
Place place_in(const CapturedAttention& attention, int64_t head, const AnalysisSettings& s, double& largest) {
  Place place{&attention, head, s.position < 0 ? queries_of(attention) - 1 : s.position, s.key};
  std::vector<double> sizes = attention.weights[head][place.query].to_vector();
  for (double& size : sizes) size = std::abs(size);
  if (s.key < 0) place.column = most_likely(sizes);
  largest = sizes[static_cast<size_t>(place.column)];
  return place;
}

// Returns the place with the largest |weight| of the chosen layers and heads that have the query and the key.
Place chosen_place(const std::vector<CapturedAttention>& all, const AnalysisSettings& s) {
  Place best;
  double largest = -1;
  for (const size_t layer : chosen_layers(all.size(), s.layer, "attention modules")) {
    const CapturedAttention& attention = all[layer];
    check_head(s.head, attention.heads(), attention.path);
    if (s.position >= queries_of(attention) || s.key >= columns_of(attention)) continue;
    const int64_t end = s.head < 0 ? attention.heads() : s.head + 1;
    for (int64_t head = std::max<int64_t>(s.head, 0); head < end; ++head) {
      double weight = 0;
      const Place place = place_in(attention, head, s, weight);
      if (weight > largest) best = place, largest = weight;
    }
  }
  const std::string given = (s.position < 0 ? "" : text("--position=", s.position, " ")) +
                            (s.key < 0 ? "" : text("--key=", s.key, " "));
  check_usage(best.attention, "inspect: ", given, "is out of range; the first attention has queries from 0 to ",
              queries_of(all[0]) - 1, " and keys and slots from 0 to ", columns_of(all[0]) - 1);
  return best;
}

using Row = std::vector<std::string>;
std::string number(double x) { return significant(x, 5); }

// Adds the value that the model uses. An edit can change it: one by more than rounding, as of bf16, is noted.
void add_result(std::vector<Row>& rows, const char* name, double used, double computed) {
  const bool edited = std::abs(used - computed) > 0.02 * std::abs(computed) + 1e-6;
  if (edited) rows.push_back({text("computed ", name), number(computed), "of the steps before"});
  rows.push_back({name, number(used), edited ? "changed by an edit" : ""});
}

void add_score(std::vector<Row>& rows, const AttentionCell& cell) {
  const auto channels = static_cast<int64_t>(cell.query.size());
  rows.push_back({"<q, k>", number(cell.product), text("sum of ", pluralize(channels, "product"))});
  rows.push_back({"scaled", number(cell.scale * cell.product), text("times ", number(cell.scale))});
  if (cell.position != 0) rows.push_back({"position", number(cell.position), "added: the term of the distance"});
  if (cell.cap > 0)
    rows.push_back({"capped", number(cell.computed_score()), text("c tanh(x / c), c = ", number(cell.cap))});
  add_result(rows, "score", cell.score, cell.computed_score());
}

void add_weight(std::vector<Row>& rows, const AttentionCell& cell) {
  if (cell.largest) rows.push_back({"largest score", number(*cell.largest), "of the row; subtracted"});
  if (cell.function)
    rows.push_back({cell.largest ? "exp(score - largest)" : "F(score)", number(*cell.function), ""});
  if (cell.span) rows.push_back({"span", number(*cell.span), "factor of the ramp at this distance"});
  if (cell.factor) rows.push_back({"factor", number(*cell.factor), "of the row's length"});
  if (cell.total) rows.push_back({"total", number(*cell.total), "sum of the row; divides"});
}

// Adds bounds of the threshold of a row rule: the scores of the keys with and without weight.
void add_rule(std::vector<Row>& rows, const AttentionCell& cell, const Place& place) {
  if (cell.function) return;
  const std::vector<double> weights = place.attention->weights[place.head][place.query].to_vector();
  double with = INFINITY, without = -INFINITY;
  for (size_t j = 0; j < weights.size(); ++j)
    if (weights[j] != 0)
      with = std::min(with, cell.row_scores[j]);
    else
      without = std::max(without, cell.row_scores[j]);
  rows.push_back({"lowest score with weight", number(with), "the row's threshold is below it"});
  if (std::isfinite(without)) rows.push_back({"highest without", number(without), "it is not below this"});
}

View steps_of(const AttentionCell& cell, const Place& place) {
  TableView table{{"step", "value", ""}, "lrl", {}};
  if (cell.visible) add_score(table.rows, cell);
  table.rows.push_back({"mask", cell.visible ? "visible" : "hidden",
                        text(cell.visible_keys, " of ", columns_of(*place.attention), " keys and slots are visible")});
  if (cell.visible) add_weight(table.rows, cell), add_rule(table.rows, cell, place);
  add_result(table.rows, "weight", cell.weight, cell.function || !cell.visible ? cell.computed_weight() : cell.weight);
  return {"Attention score", "", place.label(), "From the query and the key to the weight.", std::move(table)};
}

std::vector<double> products_of(const AttentionCell& cell) {
  std::vector<double> products;
  for (size_t d = 0; d < cell.query.size(); ++d) products.push_back(cell.query[d] * cell.key[d]);
  return products;
}

View channels_of(const AttentionCell& cell, int64_t top) {
  const std::vector<double> products = products_of(cell);
  std::vector<double> sizes;
  for (const double product : products) sizes.push_back(std::abs(product));
  TableView table{{"channel", "q", "k", "q k"}, "rrrr", {}};
  double rest = cell.product;
  for (const int32_t d : largest(sizes, top)) {
    const auto i = static_cast<size_t>(d);
    table.rows.push_back({std::to_string(d), number(cell.query[i]), number(cell.key[i]), number(products[i])});
    rest -= products[i];
  }
  if (table.rows.size() < products.size()) table.rows.push_back({"others", "", "", number(rest)});
  return {"Attention score", "", "Channels with the largest products", "They add up to <q, k>.", std::move(table)};
}

View vectors_of(const AttentionCell& cell) {
  MapView map{.quantity = "value", .rows = {"q", "k", "q k"}, .columns = {}, .values = {}, .has_sign = true};
  map.axes = {"", "channel"};
  for (size_t d = 0; d < cell.query.size(); ++d) map.columns.push_back(std::to_string(d));
  std::vector<double> values = cell.query;
  for (const std::vector<double>& more : {cell.key, products_of(cell)})
    values.insert(values.end(), more.begin(), more.end());
  map.values = Tensor::from(Shape{1, 3, static_cast<int64_t>(map.columns.size())}, values, Dtype::f64);
  return {"Attention score", "attention_score/vectors", "Query, key and their products", "", std::move(map), true};
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const std::vector<CapturedAttention> all = capture_attentions(example);
  if (all.empty()) return;
  const Place place = chosen_place(all, s);
  const AttentionCell cell = attention_cell(example, *place.attention, place.head, place.query, place.column);
  views.push_back(steps_of(cell, place));
  if (!cell.visible) return;
  views.push_back(channels_of(cell, s.top));
  views.push_back(vectors_of(cell));
}

REGISTER_ANALYSIS(attention_score,
                  {.name = "attention_score",
                   .description = "one attention weight step by step: query and key, their products, scale, position, "
                                  "mask, and the function of the score (--layer, --head, --position, --key)",
                   .analyze = analyze});

}  // namespace
}  // namespace orrery::models
