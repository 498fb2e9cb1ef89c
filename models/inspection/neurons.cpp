// Feed-forward units and persistent slots (units.h): top activations and promoted logits.
//
//   activations positions with the largest |value| of the unit, over the example and the corpus, in their context
//   promotes    tokens or classes whose logits rise most, and fall most, by z(r + a v) - z(r). r is the last
//               residual state at the unit's top activation, a its value there, v the unit's contribution to the
//               residual stream per 1 of value: the state after its sublayer with this unit at a and all others
//               at 0, minus the state with all at 0, over a. So v includes gains, gates and output weights. If
//               only a linear head follows r, the rise is a W_head v (Geva et al. 2022, arXiv:2203.14680;
//               TransformerLens reads W_out W_U); otherwise it also includes the final normalization
//   carriers    number of units, largest first, with 85 % of the sum of |value| at a position, mean over positions
//               (A Study on ReLU and Softmax in Transformer, arXiv:2302.06461, finds 0.2 % of slots under softmax)
//   dead        fraction of dead units, which are exactly 0 at every position
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "engine/types/format.h"
#include "models/inspection/base/residual_stream.h"
#include "models/inspection/base/targets.h"
#include "models/inspection/base/units.h"

namespace orrery::models {
namespace {

constexpr double mass_fraction = 0.85;
constexpr size_t promoted_per_line = 5, positions_per_line = 3;

struct Peak {
  double value;
  const InspectedExample* example;
  size_t position;
};

// Statistics of the units of one module over the positions of all examples.
class UnitStats {
 public:
  UnitStats(const UnitGroup& group, size_t max_peaks)
      : group_(group),
        max_peaks_(max_peaks),
        peaks_(static_cast<size_t>(group.units())),
        active_(peaks_.size()),
        sorted_mass_(peaks_.size()) {}

  void add(const InspectedExample& example, const Tensor& values) {  // (positions, units)
    for (int64_t position = 0; position < values.size(0); ++position) {
      std::vector<double> sizes = values[position].to_vector();
      double total = 0;
      for (size_t unit = 0; unit < sizes.size(); ++unit) {
        const double value = sizes[unit];
        if (value != 0) active_[unit] = true, add_peak(peaks_[unit], {value, &example, static_cast<size_t>(position)});
        total += sizes[unit] = std::abs(value);
      }
      if (total > 0) add_mass(std::move(sizes), total);
    }
  }
  const UnitGroup& group() const { return group_; }  // with the values of the first example
  const std::vector<Peak>& peaks(int64_t unit) const { return peaks_[static_cast<size_t>(unit)]; }
  double carriers() const { return positions_ > 0 ? carriers_ / positions_ : NAN; }
  double dead_fraction() const {
    return static_cast<double>(std::count(active_.begin(), active_.end(), false)) / static_cast<double>(active_.size());
  }
  // Returns the cumulative fraction of the largest units over their number, in growing steps.
  LineView::Line curve() const {
    LineView::Line line{group_.path, {}, {}};
    double sum = 0, next = 1;
    for (size_t i = 0; i < sorted_mass_.size(); ++i) {
      sum += sorted_mass_[i];
      const auto count = static_cast<double>(i + 1);
      if (count < next && i + 1 < sorted_mass_.size()) continue;
      line.x.push_back(count), line.y.push_back(sum / positions_), next = std::max(count + 1, count * 1.1);
    }
    return line;
  }
  // Returns the units with the largest |values|, largest first.
  std::vector<int64_t> top_units(int64_t count) const {
    std::vector<double> sizes;
    for (const std::vector<Peak>& each : peaks_) sizes.push_back(each.empty() ? 0 : std::abs(each[0].value));
    const std::vector<int32_t> units = largest(sizes, count);
    return {units.begin(), units.end()};
  }

 private:
  void add_peak(std::vector<Peak>& peaks, const Peak& peak) const {
    if (peaks.size() == max_peaks_ && std::abs(peak.value) <= std::abs(peaks.back().value)) return;
    const auto larger = [](const Peak& a, const Peak& b) { return std::abs(a.value) > std::abs(b.value); };
    peaks.insert(std::upper_bound(peaks.begin(), peaks.end(), peak, larger), peak);
    if (peaks.size() > max_peaks_) peaks.pop_back();
  }
  void add_mass(std::vector<double> sizes, double total) {
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    double sum = 0;
    bool reached = false;
    for (size_t i = 0; i < sizes.size(); ++i) {
      sorted_mass_[i] += sizes[i] / total, sum += sizes[i];
      if (!reached && sum >= mass_fraction * total) carriers_ += static_cast<double>(i + 1), reached = true;
    }
    ++positions_;
  }

  UnitGroup group_;
  size_t max_peaks_;
  std::vector<std::vector<Peak>> peaks_;  // per unit
  std::vector<bool> active_;
  std::vector<double> sorted_mass_;
  double carriers_ = 0, positions_ = 0;
};

std::vector<UnitStats> unit_stats(const InspectedExample& example, const AnalysisSettings& s) {
  std::vector<UnitStats> all_stats;
  const size_t max_peaks = std::max(positions_per_line, static_cast<size_t>(std::max<int64_t>(s.top, 1)));
  for (const UnitGroup& group : capture_units(example)) {
    all_stats.emplace_back(group, max_peaks);
    all_stats.back().add(example, group.values);
  }
  size_t done = 0;
  for (const InspectedExample* other : s.corpus) {
    s.report_progress("read the corpus", ++done, s.corpus.size());
    if (other == &example) continue;
    const std::vector<UnitGroup> captured = capture_units(*other);
    check(captured.size() == all_stats.size(), "inspect: the corpus must consist of examples of one model");
    for (size_t i = 0; i < captured.size(); ++i) all_stats[i].add(*other, captured[i].values);
  }
  return all_stats;
}

// Returns a position's label in its context: "…the␣qu[i]ck␣fox…". Adds spaces between labels if no
// label contains one.
std::string in_context(const InspectedExample::Labels& labels, size_t position) {
  constexpr size_t context_bytes = 14;  // bytes on each side
  const bool has_spaces = std::any_of(labels.begin(), labels.end(),
                                      [](const std::string& label) { return label.find("␣") != std::string::npos; });
  const std::string separator = has_spaces ? "" : " ";
  if (position >= labels.size()) return "whole example";
  std::string before, after;
  size_t first = position, end = position + 1;
  while (first > 0 && before.size() < context_bytes) before = labels[--first] + separator + before;
  while (end < labels.size() && after.size() < context_bytes) after += separator + labels[end++];
  return (first > 0 ? "…" : "") + before + "[" + labels[position] + "]" + after + (end < labels.size() ? "…" : "");
}

// ---- promoted logits

struct PromotedLogits {
  double value;               // a
  std::vector<double> rises;  // per token or class
};

// Returns the residual state after the unit's sublayer at one position, with all other units at 0.
std::vector<double> state_with_unit(const InspectedExample& example, const UnitGroup& group, size_t position,
                                    std::optional<int64_t> unit, double value) {
  std::vector<ValueEdit> edits = {group.set_all(0)};
  if (unit) edits.push_back(group.set(*unit, value));
  const Hooks hooks(names_of(edits), replace_by(edits));
  std::vector<double> state;
  capture_values(
      example, {group.path + ".residual"}, [&](const std::string&, const std::string&, const Tensor& residual) {
        const Tensor rows = to_cpu(residual).reshape(Shape{residual.shape().rows(), residual.shape().last()});
        state = rows[static_cast<int64_t>(position)].to_vector();
      });
  return state;
}

class LogitPromotion {
 public:
  // Returns none if the module is not on the stream that gives the logits.
  std::optional<PromotedLogits> of(const InspectedExample& example, const UnitGroup& group, int64_t unit,
                                   const Peak& peak) {
    const auto& [stream, before] = baseline_of(example);
    if (stream.states.empty() || std::none_of(stream.states.begin(), stream.states.end(),
                                              [&](const ResidualState& state) { return state.path == group.path; }))
      return {};
    const double a = peak.value != 0 ? peak.value : 1;
    const std::vector<double> with = state_with_unit(example, group, peak.position, unit, a),
                              without = state_with_unit(example, group, peak.position, {}, 0);
    // Adds a v at every position, because the head may read another position or the mean of all.
    std::vector<double> states = stream.last().value.to_vector();
    for (size_t i = 0; i < states.size(); ++i) states[i] += with[i % with.size()] - without[i % with.size()];
    const Shape shape = stream.last().value.shape();
    const Tensor after = logits_of(example, stream, Tensor::from(shape, states, Dtype::f64));
    const auto row = std::min(static_cast<int64_t>(peak.position), after.size(0) - 1);
    PromotedLogits promoted{a, after[row].to_vector()};
    const std::vector<double> former = before[row].to_vector();
    for (size_t i = 0; i < former.size(); ++i) promoted.rises[i] -= former[i];
    return promoted;
  }

 private:
  struct Baseline {
    ResidualStream stream;  // the stream that gives the logits
    Tensor logits;
  };
  const Baseline& baseline_of(const InspectedExample& example) {
    const auto [found, is_new] = baselines_.try_emplace(&example);
    if (!is_new) return found->second;
    if (std::vector<ResidualStream> all = observe_streams(example).streams; !all.empty()) {
      found->second.stream = std::move(all.back());
      found->second.logits = logits_of(example, found->second.stream, found->second.stream.last().value);
    }
    return found->second;
  }
  std::map<const InspectedExample*, Baseline> baselines_;
};

std::string promoted_text(const InspectedExample& example, const PromotedLogits& promoted) {
  std::string line;
  for (const int32_t id : largest(promoted.rises, promoted_per_line))
    line += (line.empty() ? "" : "  ") + example.target_name(id) + " " +
            signed_fixed(promoted.rises[static_cast<size_t>(id)], 2);
  return line;
}

// ---- views

void add_unit(std::vector<View>& views, const InspectedExample& example, const UnitStats& stats, int64_t unit,
              LogitPromotion& promotion, const AnalysisSettings& s) {
  const UnitGroup& group = stats.group();
  const std::string name = group.path + " " + group.unit(unit);
  const std::vector<Peak>& peaks = stats.peaks(unit);
  TableView table{{"value", "position", "top activations"}, "rrl", {}};
  for (const Peak& peak : peaks)
    if (static_cast<int64_t>(table.rows.size()) < s.top)
      table.rows.push_back({significant(peak.value, 4), std::to_string(peak.position),
                            in_context(peak.example->position_labels(group.path), peak.position)});
  views.push_back({"Neurons", "", name,
                   peaks.empty() ? "The unit is 0 at every position." : "Positions with the unit's largest |value|.",
                   std::move(table)});
  const Peak at = peaks.empty() ? Peak{0, &example, 0} : peaks[0];
  const auto promoted = promotion.of(*at.example, group, unit, at);
  if (!promoted) return;
  BarView bars{"increase of the logit", {}};
  std::vector<double> falls = promoted->rises;
  for (double& fall : falls) fall = -fall;
  std::vector<int32_t> ids = largest(promoted->rises, s.top), lowest = largest(falls, s.top);
  for (auto id = lowest.rbegin(); id != lowest.rend(); ++id)
    if (std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  for (const int32_t id : ids)
    bars.bars.push_back({.name = example.target_name(id), .value = promoted->rises[static_cast<size_t>(id)]});
  views.push_back({"Neurons", "", name + ": promoted logits",
                   text("Change of the logits if the unit's contribution at value ", significant(promoted->value, 4),
                        " is added to the last residual state."),
                   std::move(bars)});
}

void add_top_units(std::vector<View>& views, const InspectedExample& example, const UnitStats& stats,
                   LogitPromotion& promotion, const AnalysisSettings& s) {
  const UnitGroup& group = stats.group();
  TableView table{{"unit", "value", "promotes", "top activations"}, "lrll", {}};
  MapView map{
      .quantity = "value", .rows = {}, .columns = example.position_labels(group.path), .values = {}, .has_sign = false};
  std::vector<double> values;
  const std::vector<double> all = group.values.to_vector();
  for (const int64_t unit : stats.top_units(s.top)) {
    const std::vector<Peak>& peaks = stats.peaks(unit);
    if (peaks.empty()) continue;
    const auto promoted = promotion.of(*peaks[0].example, group, unit, peaks[0]);
    std::string contexts;
    for (size_t i = 0; i < std::min(peaks.size(), positions_per_line); ++i)
      contexts += (i > 0 ? "  " : "") + in_context(peaks[i].example->position_labels(group.path), peaks[i].position);
    table.rows.push_back({group.unit(unit), significant(peaks[0].value, 4),
                          promoted ? promoted_text(example, *promoted) : "-", contexts});
    map.rows.push_back(group.unit(unit));
    for (int64_t position = 0; position < group.values.size(0); ++position)
      values.push_back(all[static_cast<size_t>(position * group.units() + unit)]);
  }
  if (table.rows.empty()) return;
  views.push_back({"Neurons", "", group.path,
                   "The units with the largest |values|, the logits that each increases most at its top activation, "
                   "and the contexts of its top activations.",
                   std::move(table)});
  const Shape shape{1, static_cast<int64_t>(map.rows.size()), group.values.size(0)};
  if (static_cast<int64_t>(map.columns.size()) != shape[2])
    map.columns.assign(static_cast<size_t>(shape[2]), "whole example");
  map.has_sign = std::any_of(values.begin(), values.end(), [](double value) { return value < 0; });
  map.values = Tensor::from(shape, values, Dtype::f64);
  views.push_back(
      {"Neurons", "neurons/" + group.path, group.path + ": values of these units", "", std::move(map), true});
}

void add_concentration(std::vector<View>& views, const std::vector<UnitStats>& all_stats,
                       const std::vector<size_t>& layers) {
  TableView table{{"module", "units", "for 85 %", "of all", "dead"}, "lrrrr", {}};
  LineView lines{"number of largest units", "fraction of the sum of |value|", {}};
  std::vector<std::pair<std::string, double>> metrics;
  for (const size_t layer : layers) {
    const UnitStats& stats = all_stats[layer];
    const auto units = static_cast<double>(stats.group().units());
    table.rows.push_back({stats.group().path, std::to_string(stats.group().units()), fixed(stats.carriers(), 1),
                          fixed(100 * stats.carriers() / units, 2) + " %",
                          fixed(100 * stats.dead_fraction(), 1) + " %"});
    lines.lines.push_back(stats.curve());
    for (const auto& [name, value] :
         {std::pair("carriers", stats.carriers()), std::pair("never_open", stats.dead_fraction())})
      metrics.emplace_back(text("neurons/", name, "/", stats.group().path), value);
  }
  views.push_back({"Neurons", "", "Concentration of the activations",
                   "Number of largest units that have 85 % of the sum of |value| at a position, as a mean over the "
                   "positions, and the fraction of dead units, which are 0 at every position.",
                   std::move(table), false, std::move(metrics)});
  views.push_back({"Neurons", "neurons/mass", "Cumulative fraction of the largest units", "", std::move(lines), true});
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const std::vector<UnitStats> all_stats = unit_stats(example, s);
  if (all_stats.empty()) return;
  const std::vector<size_t> layers = chosen_layers(all_stats.size(), s.layer, "feed-forward and slot modules");
  add_concentration(views, all_stats, layers);
  LogitPromotion promotion;
  for (const size_t layer : layers) {
    all_stats[layer].group().check_unit(s.slot);
    if (s.slot >= 0)
      add_unit(views, example, all_stats[layer], s.slot, promotion, s);
    else
      add_top_units(views, example, all_stats[layer], promotion, s);
  }
}

REGISTER_ANALYSIS(neurons, {.name = "neurons",
                            .description = "feed-forward units and persistent slots: top activations and their "
                                           "concentration, promoted logits, dead units",
                            .analyze = analyze});

}  // namespace
}  // namespace orrery::models
