// Metrics of each head, layers x heads. p are a row's weights as fractions, |w| / sum |w|. Means
// are over the rows with a nonzero weight.
//   distance       sum_j p_ij d(i, j) over the keys, with p rescaled to exclude the slots
//   slots          sum of p on persistent slots
//   first          sum of p on the first key
//   previous       sum of p on the key just before the row's own token
//   induction      sum of p on the key after the token's earlier occurrence, in a random sequence of n tokens
//                  that is repeated once: p from position i >= n to position i - n + 1
//                  (Olsson et al. 2022, arXiv:2209.11895)
// Entropy, zeros, row sum and span are metrics of `orrery list metric`. The entropy's ceiling is that
// of uniform weights: ln(T!) / T under a causal mask, else ln of the number of keys and slots. The
// level of chance of entropy and of the metrics above: their value for equal weights on all that a
// query may attend to.
// Quarters of the ceiling as in Jha and Reagen 2024, arXiv:2410.09637.
#include <algorithm>
#include <set>

#include "engine/math/random.h"
#include "engine/ops/ops.h"
#include "engine/types/format.h"
#include "models/inspection/base/captured_attention.h"
#include "models/metrics/base/model_metric.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

using Results = std::map<std::string, std::vector<double>>;  // of one attention: per metric one number per head

class Mean {
 public:
  void add(double x) {
    if (!std::isnan(x)) sum_ += x, ++count_;
  }
  double value() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : NAN; }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

// The rows of a head's weights, as fractions.
class HeadRows {
 public:
  HeadRows(const CapturedAttention& captured, int64_t head)
      : captured_(captured), columns_(captured.columns.size()), weights_(captured.weights[head].to_vector()) {}
  // Calls f(row, fractions) for the rows with a nonzero weight.
  void each(const auto& f) const {
    std::vector<double> fractions(columns_);
    for (size_t row = 0; row < captured_.queries.size(); ++row) {
      double sum = 0;
      for (size_t k = 0; k < columns_; ++k) sum += fractions[k] = std::abs(weights_[row * columns_ + k]);
      if (!(sum > 0)) continue;
      for (double& fraction : fractions) fraction /= sum;
      f(row, fractions);
    }
  }

 private:
  const CapturedAttention& captured_;
  size_t columns_;
  std::vector<double> weights_;
};

void add_position_metrics(Results& results, const InspectedExample& example, const CapturedAttention& captured) {
  const auto keys = static_cast<size_t>(captured.keys);
  const bool is_self = &example.position_labels(captured.path) == &example.key_labels(captured.path),
             text = is_self && example.tokens();
  for (int64_t head = 0; head < captured.heads(); ++head) {
    Mean distance, slots, first, previous;
    HeadRows(captured, head).each([&](size_t row, const std::vector<double>& fractions) {
      double far = 0, of_keys = 0, of_slots = 0;
      for (size_t k = 0; k < fractions.size(); ++k) {
        if (k >= keys) {
          of_slots += fractions[k];
          continue;
        }
        const double d = example.distance(captured.path, row, k);
        if (!std::isnan(d)) far += fractions[k] * d, of_keys += fractions[k];
      }
      if (of_keys > 0) distance.add(far / of_keys);
      slots.add(of_slots), first.add(fractions[0]);
      if (text && row > 0) previous.add(fractions[row - 1]);
    });
    const auto put = [&](const char* name, const Mean& mean) { results[name].push_back(mean.value()); };
    put("distance", distance), put("first", first);
    if (captured.slots() > 0) put("slots", slots);
    if (text) put("previous", previous);
  }
}

// Returns random tokens of the example, repeated once; a vocabulary may have tokens of no text.
std::vector<int32_t> repeated(const std::vector<int32_t>& tokens, uint64_t seed) {
  const std::set<int32_t> known(tokens.begin(), tokens.end());
  const std::vector<int32_t> kinds(known.begin(), known.end());
  std::vector<int32_t> all;
  const RandomKey key = RandomKey{seed, 0}.derive("induction");
  for (size_t i = 0; i < tokens.size() / 2; ++i)
    all.push_back(kinds[static_cast<size_t>(uniform<double>(key, i) * static_cast<double>(kinds.size()))]);
  all.insert(all.end(), all.begin(), all.end());
  return all;
}

// Returns the attention with equal weights on all that a query may attend to.
CapturedAttention uniform(CapturedAttention captured) {
  captured.weights = captured.visible;
  return captured;
}

double mean_entropy(const CapturedAttention& captured, int64_t head) {
  Mean entropy;
  HeadRows(captured, head).each([&](size_t, const std::vector<double>& fractions) {
    double sum = 0;
    for (const double p : fractions) sum -= p > 0 ? p * std::log(p) : 0;
    entropy.add(sum);
  });
  return entropy.value();
}

void add_induction(std::vector<Results>& results, std::vector<Results>& chance, const InspectedExample& example,
                   uint64_t seed) {
  if (!example.tokens() || example.tokens()->size() < 4) return;
  const auto twice = example.from_tokens(repeated(*example.tokens(), seed), true);
  const size_t half = twice->tokens()->size() / 2;
  const std::vector<CapturedAttention> all = capture_attentions(*twice);
  const auto add = [&](Results& to, const CapturedAttention& captured) {
    for (int64_t head = 0; head < captured.heads(); ++head) {
      Mean induction;
      HeadRows(captured, head).each([&](size_t row, const std::vector<double>& fractions) {
        if (row >= half) induction.add(fractions[row - half + 1]);
      });
      to["induction"].push_back(induction.value());
    }
  };
  for (size_t layer = 0; layer < all.size(); ++layer)
    add(results[layer], all[layer]), add(chance[layer], uniform(all[layer]));
}

// Adds the head metrics that a run can log too.
void add_logged_metrics(std::vector<Results>& results, const InspectedExample& example,
                        const std::vector<CapturedAttention>& all) {
  MetricRow row;
  const NoGrad guard;
  collect_metrics(row, select_metrics("entropy, attention_zero_fraction, row_sum, span"), example.model(),
                  [&] { example.run(); });
  for (size_t layer = 0; layer < all.size(); ++layer)
    for (const auto& [metric, name] : {std::pair("entropy", "entropy"), std::pair("attention_zero_fraction", "zeros"),
                                       std::pair("row_sum", "row sum"), std::pair("span", "span")})
      for (int64_t head = 0; head < all[layer].heads(); ++head)
        if (const auto found = row.find(text(metric, "/", all[layer].path, ".", head)); found != row.end())
          results[layer][name].push_back(found->second);
}

// Returns the entropy of uniform weights, as a mean over the rows.
double entropy_ceiling(const CapturedAttention& captured) {
  const std::vector<double> visible = captured.visible.to_vector();
  const auto rows = captured.queries.size(), columns = captured.columns.size();
  bool causal = captured.slots() == 0;
  for (size_t i = 0; i < visible.size(); ++i) causal &= visible[i] == 0 || i % columns <= i / columns % rows;
  return causal ? nn::causal_entropy_ceiling(captured.keys) : std::log(static_cast<double>(columns));
}

struct HeadMetric {
  std::string name, meaning;
  double max_value;  // end of the scale, which begins at 0; NaN: the maximum of the values
};
const std::vector<HeadMetric> head_metrics = {
    {"entropy", "mean over the rows, in nats", NAN},  // at least the ceiling
    {"zeros", "fraction of exact zeros among the visible weights", 1},
    {"row sum", "mean over the rows; 1 for softmax", NAN},
    {"distance", "mean distance to the attended keys", NAN},
    {"span", "attention span, in tokens", NAN},
    {"slots", "fraction of the weight on persistent slots", 1},
    {"induction", "fraction on the token after the previous occurrence, in a repeated random sequence", 1},
    {"previous", "fraction on the preceding token", 1},
    {"first", "fraction on the first position", 1}};

bool is_chosen(const AnalysisSettings& s, int64_t head) { return s.head < 0 || s.head == head; }

void add_quarters(std::vector<View>& views, const std::vector<CapturedAttention>& all,
                  const std::vector<Results>& results, const AnalysisSettings& s) {
  std::array<double, 4> counts{};
  double heads = 0;
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const double ceiling = entropy_ceiling(all[layer]);
    const auto found = results[layer].find("entropy");
    if (found == results[layer].end() || !(ceiling > 0)) continue;
    std::vector<double> entropies;
    for (size_t head = 0; head < found->second.size(); ++head)
      if (is_chosen(s, static_cast<int64_t>(head))) entropies.push_back(found->second[head]);
    const auto n = static_cast<int64_t>(entropies.size());
    const auto fractions = nn::entropy_histogram(Tensor::from(Shape{n}, entropies, Dtype::f64), ceiling);
    for (size_t i = 0; i < 4; ++i) counts[i] += fractions[i] * static_cast<double>(n);
    heads += static_cast<double>(n);
  }
  if (heads == 0) return;
  BarView bars{"fraction of the heads", {}};
  const char* const names[] = {"0 to 1/4", "1/4 to 1/2", "1/2 to 3/4", "3/4 to 1"};
  std::vector<std::pair<std::string, double>> view_metrics;
  for (size_t i = 0; i < 4; ++i) {
    bars.bars.push_back(
        {.name = names[i], .value = counts[i] / heads, .note = pluralize(std::lround(counts[i]), "head")});
    view_metrics.emplace_back(text("heads/entropy_quarter/", i), counts[i] / heads);
  }
  views.push_back({"Heads", "", "Entropies relative to uniform weights",
                   "Fraction of the heads with an entropy in each quarter of that of uniform weights.", std::move(bars),
                   false, std::move(view_metrics)});
}

std::string file_name(std::string metric) {
  std::replace(metric.begin(), metric.end(), ' ', '_');
  return metric;
}

// Adds a map of layers x heads. The scale begins at 0, so that similar heads look similar.
void add_map(std::vector<View>& views, const HeadMetric& metric, const std::vector<CapturedAttention>& all,
             const std::vector<Results>& results, int64_t max_heads, const AnalysisSettings& s) {
  MapView map{.quantity = metric.name, .rows = {}, .columns = {}, .values = {}};
  map.axes = {"", "head"}, map.low = 0, map.high = metric.max_value, map.none = "no value";
  std::vector<double> values;
  double max_value = 0;
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const auto found = results[layer].find(metric.name);
    for (int64_t head = 0; head < max_heads; ++head) {
      const bool has_value =
          is_chosen(s, head) && found != results[layer].end() && head < static_cast<int64_t>(found->second.size());
      values.push_back(has_value ? found->second[static_cast<size_t>(head)] : NAN);
      if (values.back() > max_value) max_value = values.back();
    }
    map.rows.push_back(all[layer].path);
    if (metric.name == "entropy") max_value = std::max(max_value, entropy_ceiling(all[layer]));
  }
  for (int64_t head = 0; head < max_heads; ++head) map.columns.push_back(std::to_string(head));
  if (std::isnan(map.high) && max_value > 0) map.high = max_value;
  map.values = Tensor::from(Shape{1, static_cast<int64_t>(all.size()), max_heads}, values, Dtype::f64);
  const std::string caption = metric.name == "entropy" ? "The scale includes the entropy of uniform weights." : "";
  views.push_back({"Heads", "heads/" + file_name(metric.name), metric.name, caption, std::move(map), true});
}

// Returns the metrics of the chosen attentions, and their levels of chance; reduces `all` to these.
std::pair<std::vector<Results>, std::vector<Results>> results_of(const InspectedExample& example,
                                                                 const AnalysisSettings& s,
                                                                 std::vector<CapturedAttention>& all) {
  std::vector<Results> results(all.size()), chance(all.size());
  add_logged_metrics(results, example, all);
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const CapturedAttention equal = uniform(all[layer]);
    add_position_metrics(results[layer], example, all[layer]), add_position_metrics(chance[layer], example, equal);
    for (int64_t head = 0; head < equal.heads(); ++head) chance[layer]["entropy"].push_back(mean_entropy(equal, head));
  }
  add_induction(results, chance, example, static_cast<uint64_t>(s.seed));
  std::vector<CapturedAttention> chosen;
  std::vector<Results> chosen_results, chosen_chance;
  for (const size_t layer : chosen_layers(all.size(), s.layer, "attention modules")) {
    check_head(s.head, all[layer].heads(), all[layer].path);
    chosen.push_back(std::move(all[layer])), chosen_results.push_back(std::move(results[layer])),
        chosen_chance.push_back(std::move(chance[layer]));
  }
  all = std::move(chosen);
  return {std::move(chosen_results), std::move(chosen_chance)};
}

void analyze_heads(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  std::vector<CapturedAttention> all = capture_attentions(example);
  if (all.empty()) return;
  const auto results_and_chance = results_of(example, s, all);
  const std::vector<Results>&results = results_and_chance.first, &chance = results_and_chance.second;

  int64_t max_heads = 0;
  for (const CapturedAttention& captured : all) max_heads = std::max(max_heads, captured.heads());
  TableView table{{"attention", "head"}, "lr", {}};
  std::vector<HeadMetric> metrics;
  std::vector<std::pair<std::string, double>> view_metrics, view_chance;
  std::string caption;
  for (const HeadMetric& metric : head_metrics)
    if (std::any_of(results.begin(), results.end(), [&](const Results& each) { return each.contains(metric.name); })) {
      metrics.push_back(metric), table.columns.push_back(metric.name), table.alignment += 'r';
      caption += (caption.empty() ? "" : "; ") + metric.name + ": " + metric.meaning +
                 (metric.name == "distance" ? ", in " + example.distance_unit() : std::string());
    }
  for (size_t layer = 0; layer < all.size(); ++layer) {
    for (int64_t head = 0; head < all[layer].heads(); ++head) {
      if (!is_chosen(s, head)) continue;
      const bool first = head == std::max<int64_t>(s.head, 0);
      std::vector<std::string> row = {first ? all[layer].path : "", std::to_string(head)};
      for (const HeadMetric& metric : metrics) {
        const auto value_in = [&](const Results& of) {
          const auto found = of.find(metric.name);
          return found == of.end() ? NAN : found->second[static_cast<size_t>(head)];
        };
        const double x = value_in(results[layer]);
        row.push_back(std::isnan(x) ? "-" : fixed(x, 3));
        view_metrics.emplace_back(text("heads/", file_name(metric.name), "/", all[layer].path, ".", head), x);
        view_chance.emplace_back(view_metrics.back().first, value_in(chance[layer]));
      }
      table.rows.push_back(std::move(row));
    }
  }
  views.push_back({"Heads", "", "Metrics of each head", caption + ".", std::move(table), false, std::move(view_metrics),
                   std::move(view_chance)});
  add_quarters(views, all, results, s);
  for (const HeadMetric& metric : metrics) add_map(views, metric, all, results, max_heads, s);
}

REGISTER_ANALYSIS(heads, {.name = "heads",
                          .description = "metrics of each head: entropy, fraction of zeros and row sum of the weights, "
                                         "distance to keys, attention span, and weight on persistent slots, the "
                                         "first, the previous and the induction token",
                          .analyze = analyze_heads});

}  // namespace
}  // namespace orrery::models
