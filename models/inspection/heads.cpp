// Metrics of each head, layers x heads. p are a row's weights as fractions, |w| / sum |w|. Means
// are over the rows with a nonzero weight.
//   distance       sum_j p_ij d(i, j) over the keys, with p rescaled to exclude the slots
//   slots          sum of p on persistent slots
//   first          sum of p on the first key
//   previous       sum of p on the key just before the row's own token
//   induction      sum of p on the key after the token's earlier occurrence, in a random sequence of n tokens
//                  that is repeated once: p from position i >= n to position i - n + 1
//                  (Olsson et al. 2022, arXiv:2209.11895)
// Entropy, zeros, row sum and span are metrics of `orrery list figures`. The entropy's ceiling is
// that of uniform weights: ln(T!) / T under a causal mask, else ln of the number of keys and slots.
// Quarters of the ceiling as in Jha and Reagen 2024, arXiv:2410.09637.
#include <algorithm>
#include <set>

#include "engine/math/random.h"
#include "engine/types/wording.h"
#include "engine/ops/ops.h"
#include "models/figures/base/figure.h"
#include "models/inspection/base/attention_weights.h"
#include "nn/diagnostics/diagnostics.h"

namespace orrery::models {
namespace {

using Scores = std::map<std::string, std::vector<double>>;  // of one attention: per metric one number per head

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
  HeadRows(const AttentionSeen& seen, int64_t head)
      : seen_(seen), columns_(seen.columns.size()), weights_(seen.weights[head].to_vector()) {}
  // Calls f(row, fractions) for the rows with a nonzero weight.
  void each(const auto& f) const {
    std::vector<double> shares(columns_);
    for (size_t row = 0; row < seen_.queries.size(); ++row) {
      double sum = 0;
      for (size_t k = 0; k < columns_; ++k) sum += shares[k] = std::abs(weights_[row * columns_ + k]);
      if (!(sum > 0)) continue;
      for (double& share : shares) share /= sum;
      f(row, shares);
    }
  }

 private:
  const AttentionSeen& seen_;
  size_t columns_;
  std::vector<double> weights_;
};

void add_places(Scores& scores, const Subject& subject, const AttentionSeen& seen) {
  const auto keys = static_cast<size_t>(seen.keys);
  const bool itself = &subject.places(seen.path) == &subject.keys(seen.path), text = itself && subject.tokens();
  for (int64_t head = 0; head < seen.heads(); ++head) {
    Mean distance, slots, first, previous;
    HeadRows(seen, head).each([&](size_t row, const std::vector<double>& shares) {
      double far = 0, of_keys = 0, of_slots = 0;
      for (size_t k = 0; k < shares.size(); ++k) {
        if (k >= keys) {
          of_slots += shares[k];
          continue;
        }
        const double d = subject.distance(seen.path, row, k);
        if (!std::isnan(d)) far += shares[k] * d, of_keys += shares[k];
      }
      if (of_keys > 0) distance.add(far / of_keys);
      slots.add(of_slots), first.add(shares[0]);
      if (text && row > 0) previous.add(shares[row - 1]);
    });
    const auto put = [&](const char* name, const Mean& mean) { scores[name].push_back(mean.value()); };
    put("distance", distance), put("first", first);
    if (seen.slots() > 0) put("slots", slots);
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

void add_induction(std::vector<Scores>& scores, const Subject& subject, uint64_t seed) {
  if (!subject.tokens() || subject.tokens()->size() < 4) return;
  const auto twice = subject.of_tokens(repeated(*subject.tokens(), seed), true);
  const size_t half = twice->tokens()->size() / 2;
  const std::vector<AttentionSeen> all = see_attentions(*twice);
  for (size_t layer = 0; layer < all.size(); ++layer)
    for (int64_t head = 0; head < all[layer].heads(); ++head) {
      Mean induction;
      HeadRows(all[layer], head).each([&](size_t row, const std::vector<double>& shares) {
        if (row >= half) induction.add(shares[row - half + 1]);
      });
      scores[layer]["induction"].push_back(induction.value());
    }
}

// Adds the head metrics that a run can log too.
void add_figures(std::vector<Scores>& scores, const Subject& subject, const std::vector<AttentionSeen>& all) {
  FigureRow row;
  const NoGrad guard;
  look(row, figures_called("entropy, attention_zero_fraction, row_sum, span"), subject.model(), [&] { subject.run(); });
  for (size_t layer = 0; layer < all.size(); ++layer)
    for (const auto& [figure, name] : {std::pair("entropy", "entropy"), std::pair("attention_zero_fraction", "zeros"),
                                       std::pair("row_sum", "row sum"), std::pair("span", "span")})
      for (int64_t head = 0; head < all[layer].heads(); ++head)
        if (const auto found = row.find(text(figure, "/", all[layer].path, ".", head)); found != row.end())
          scores[layer][name].push_back(found->second);
}

// Returns the entropy of uniform weights, as a mean over the rows.
double entropy_ceiling(const AttentionSeen& seen) {
  const std::vector<double> visible = seen.visible.to_vector();
  const auto rows = seen.queries.size(), columns = seen.columns.size();
  bool causal = seen.slots() == 0;
  for (size_t i = 0; i < visible.size(); ++i) causal &= visible[i] == 0 || i % columns <= i / columns % rows;
  return causal ? nn::causal_entropy_ceiling(seen.keys) : std::log(static_cast<double>(columns));
}

struct HeadFigure {
  std::string name, meaning;
  double most;  // end of the scale, which begins at 0; NaN: the maximum of the values
};
const std::vector<HeadFigure> head_figures = {
    {"entropy", "mean over the rows, in nats", NAN},  // at least the ceiling
    {"zeros", "fraction of exact zeros among the visible weights", 1},
    {"row sum", "mean over the rows; 1 for softmax", NAN},
    {"distance", "mean distance to the attended keys", NAN},
    {"span", "attention span, in tokens", NAN},
    {"slots", "fraction of the weight on persistent slots", 1},
    {"induction", "fraction on the token after the previous occurrence, in a repeated random sequence", 1},
    {"previous", "fraction on the preceding token", 1},
    {"first", "fraction on the first position", 1}};

bool is_chosen(const LookSettings& s, int64_t head) { return s.head < 0 || s.head == head; }

void add_quarters(std::vector<View>& views, const std::vector<AttentionSeen>& all, const std::vector<Scores>& scores,
                  const LookSettings& s) {
  std::array<double, 4> counts{};
  double heads = 0;
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const double ceiling = entropy_ceiling(all[layer]);
    const auto found = scores[layer].find("entropy");
    if (found == scores[layer].end() || !(ceiling > 0)) continue;
    std::vector<double> entropies;
    for (size_t head = 0; head < found->second.size(); ++head)
      if (is_chosen(s, static_cast<int64_t>(head))) entropies.push_back(found->second[head]);
    const auto n = static_cast<int64_t>(entropies.size());
    const auto shares = nn::entropy_histogram(Tensor::from(Shape{n}, entropies, Dtype::f64), ceiling);
    for (size_t i = 0; i < 4; ++i) counts[i] += shares[i] * static_cast<double>(n);
    heads += static_cast<double>(n);
  }
  if (heads == 0) return;
  BarView bars{"fraction of the heads", {}};
  const char* const names[] = {"0 to 1/4", "1/4 to 1/2", "1/2 to 3/4", "3/4 to 1"};
  std::vector<std::pair<std::string, double>> told;
  for (size_t i = 0; i < 4; ++i) {
    bars.bars.push_back(
        {.name = names[i], .value = counts[i] / heads, .note = counted(std::lround(counts[i]), "head")});
    told.emplace_back(text("heads/entropy_quarter/", i), counts[i] / heads);
  }
  views.push_back({"Heads", "", "Entropies relative to uniform weights",
                   "Fraction of the heads with an entropy in each quarter of that of uniform weights.", std::move(bars),
                   false, std::move(told)});
}

std::string file_name(std::string figure) {
  std::replace(figure.begin(), figure.end(), ' ', '_');
  return figure;
}

// Adds a map of layers x heads. The scale begins at 0, so that similar heads look similar.
void add_map(std::vector<View>& views, const HeadFigure& figure, const std::vector<AttentionSeen>& all,
             const std::vector<Scores>& scores, int64_t most_heads, const LookSettings& s) {
  MapView map{.figure = figure.name, .rows = {}, .columns = {}, .values = {}};
  map.axes = {"", "head"}, map.low = 0, map.high = figure.most, map.none = "no value";
  std::vector<double> values;
  double most = 0;
  for (size_t layer = 0; layer < all.size(); ++layer) {
    const auto found = scores[layer].find(figure.name);
    for (int64_t head = 0; head < most_heads; ++head) {
      const bool there = is_chosen(s, head) && found != scores[layer].end() &&
                         head < static_cast<int64_t>(found->second.size());
      values.push_back(there ? found->second[static_cast<size_t>(head)] : NAN);
      if (values.back() > most) most = values.back();
    }
    map.rows.push_back(all[layer].path);
    if (figure.name == "entropy") most = std::max(most, entropy_ceiling(all[layer]));
  }
  for (int64_t head = 0; head < most_heads; ++head) map.columns.push_back(std::to_string(head));
  if (std::isnan(map.high) && most > 0) map.high = most;
  map.values = Tensor::from(Shape{1, static_cast<int64_t>(all.size()), most_heads}, values, Dtype::f64);
  const std::string said = figure.name == "entropy" ? "The scale includes the entropy of uniform weights." : "";
  views.push_back({"Heads", "heads/" + file_name(figure.name), figure.name, said, std::move(map), true});
}

// Returns the metrics of the chosen attentions; reduces `all` to these.
std::vector<Scores> scores_of(const Subject& subject, const LookSettings& s, std::vector<AttentionSeen>& all) {
  std::vector<Scores> scores(all.size());
  add_figures(scores, subject, all);
  for (size_t layer = 0; layer < all.size(); ++layer) add_places(scores[layer], subject, all[layer]);
  add_induction(scores, subject, static_cast<uint64_t>(s.seed));
  std::vector<AttentionSeen> chosen;
  std::vector<Scores> theirs;
  for (const size_t layer : chosen_layers(all.size(), s.layer, "attention modules")) {
    check_head(s.head, all[layer].heads(), all[layer].path);
    chosen.push_back(std::move(all[layer])), theirs.push_back(std::move(scores[layer]));
  }
  all = std::move(chosen);
  return theirs;
}

void look_at_heads(std::vector<View>& views, const Subject& subject, const LookSettings& s) {
  std::vector<AttentionSeen> all = see_attentions(subject);
  if (all.empty()) return;
  const std::vector<Scores> scores = scores_of(subject, s, all);

  int64_t most_heads = 0;
  for (const AttentionSeen& seen : all) most_heads = std::max(most_heads, seen.heads());
  TableView table{{"attention", "head"}, "lr", {}};
  std::vector<HeadFigure> figures;
  std::vector<std::pair<std::string, double>> told;
  std::string said;
  for (const HeadFigure& figure : head_figures)
    if (std::any_of(scores.begin(), scores.end(), [&](const Scores& each) { return each.contains(figure.name); })) {
      figures.push_back(figure), table.columns.push_back(figure.name), table.alignment += 'r';
      said += (said.empty() ? "" : "; ") + figure.name + ": " + figure.meaning +
              (figure.name == "distance" ? ", in " + subject.unit_of_distance() : std::string());
    }
  for (size_t layer = 0; layer < all.size(); ++layer) {
    for (int64_t head = 0; head < all[layer].heads(); ++head) {
      if (!is_chosen(s, head)) continue;
      const bool first = head == std::max<int64_t>(s.head, 0);
      std::vector<std::string> row = {first ? all[layer].path : "", std::to_string(head)};
      for (const HeadFigure& figure : figures) {
        const auto found = scores[layer].find(figure.name);
        const double x = found == scores[layer].end() ? NAN : found->second[static_cast<size_t>(head)];
        row.push_back(std::isnan(x) ? "-" : fixed(x, 3));
        told.emplace_back(text("heads/", file_name(figure.name), "/", all[layer].path, ".", head), x);
      }
      table.rows.push_back(std::move(row));
    }
  }
  views.push_back({"Heads", "", "Metrics of each head", said + ".", std::move(table), false, std::move(told)});
  add_quarters(views, all, scores, s);
  for (const HeadFigure& figure : figures) add_map(views, figure, all, scores, most_heads, s);
}

REGISTER_LOOK(heads, {.name = "heads",
                      .description = "metrics of each head: entropy, zeros, row sum, distance, span, slots, "
                                     "induction, previous, first",
                      .look = look_at_heads});

}  // namespace
}  // namespace orrery::models
