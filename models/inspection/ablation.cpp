// Ablation and activation patching: the components that the loss of an example depends on.
//
// Ablation: loss without one component minus loss with all. The loss is the targets' mean -ln p.
//   a head       its head_output (TransformerLens: hook_z) is zero at every position, as if its columns of W_o were 0
//   a sublayer   its `output` is zero, biases too: the residual stream bypasses it
//   a unit       the feed-forward's hidden value, or the weight of a persistent slot, is zero at every position;
//                other softmax weights do not change. Only units with the largest mean |value| are ablated
//
// Patching (causal tracing, Meng et al. 2022, arXiv:2202.05262; Zhang and Nanda 2023,
// arXiv:2309.16042): this example runs with the other's residual state at one layer and position.
// The result is the fraction of the difference between the examples that this restores
// (models/inspection/base/patching.h). States that are equal in both are not run: their fraction is 0.
#include <algorithm>

#include "engine/types/format.h"
#include "models/inspection/base/head_map.h"
#include "models/inspection/base/patching.h"
#include "models/inspection/base/residual_stream.h"
#include "models/inspection/base/targets.h"
#include "models/inspection/base/units.h"

namespace orrery::models {
namespace {

// ---- ablation

struct Effect {
  std::string what;
  double difference;
};

class Ablation {
 public:
  explicit Ablation(const InspectedExample& example) : example_(example) {
    const Tensor logits = example.run();
    targets_ = targets_of(example, logits);
    loss_ = loss_of(logits, targets_.by_row);
    chance_ = std::log(static_cast<double>(logits.size(1)));
  }
  double loss() const { return loss_; }
  double chance() const { return chance_; }  // the loss of equal probabilities
  const Targets& targets() const { return targets_; }
  const std::vector<Effect>& all() const { return all_; }
  double without(const std::string& what, const ValueEdit& edit) {
    const double effect = loss_of(run_edited(example_, {edit}), targets_.by_row) - loss_;
    all_.push_back({what, effect});
    return effect;
  }

 private:
  const InspectedExample& example_;
  Targets targets_;
  double loss_ = 0, chance_ = 0;
  std::vector<Effect> all_;
};

void without_heads(std::vector<View>& views, Ablation& ablation, const InspectedExample& example,
                   const AnalysisSettings& s) {
  const std::vector<Captured> head_outputs = capture(example, "head_output");
  if (head_outputs.empty()) return;
  std::vector<HeadRow> effects;
  const std::vector<size_t> layers = chosen_layers(head_outputs.size(), s.layer, "attention modules");
  for (const size_t layer : layers) {
    const std::string& path = head_outputs[layer].path;
    const int64_t heads = head_outputs[layer].value.size(-2);
    check_head(s.head, heads, path);
    effects.push_back({path, {}});
    for (int64_t head = 0; head < heads; ++head)
      effects.back().values.push_back(
          s.head >= 0 && s.head != head
              ? NAN
              : ablation.without(text(path, " head ", head),
                                 {.hook = path + ".head_output", .region = {{-2, head, head + 1}}}));
    s.report_progress("ablated heads", effects.size(), layers.size());
  }
  MapView map = head_map("loss increase (nats)", effects, "not ablated");
  views.push_back({"Ablation", "ablation/heads", "Loss without each head",
                   "Increase of the example's loss without one head; below 0, the loss is lower without it.",
                   std::move(map)});
}

void without_sublayers(std::vector<View>& views, Ablation& ablation, const std::vector<ResidualStream>& streams,
                       const AnalysisSettings& s) {
  BarView bars{"loss increase (nats)", {}};
  for (const ResidualStream& stream : streams)
    for (size_t k = 0; k < stream.states.size(); ++k) {
      const ResidualState& state = stream.states[k];
      if (!state.is_embedding())
        bars.bars.push_back(
            {.name = state.path, .value = ablation.without(state.path, {.hook = state.path + ".output"})});
      s.report_progress("ablated sublayers", k + 1, stream.states.size());
    }
  if (!bars.bars.empty())
    views.push_back({"Ablation", "", "Loss without each sublayer",
                     "Increase of the example's loss without a whole attention or feed-forward.", std::move(bars)});
}

// Returns the units with the largest mean |value|, at most s.top, or only s.slot if it is set.
std::vector<int64_t> top_units(const UnitGroup& group, const AnalysisSettings& s) {
  if (s.slot >= 0) return {s.slot};
  const std::vector<double> values = group.values.to_vector();
  std::vector<double> sums(static_cast<size_t>(group.units()));
  for (size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += std::abs(values[i]);
  const std::vector<int32_t> first = largest(sums, s.top);
  return {first.begin(), first.end()};
}

void without_units(Ablation& ablation, const InspectedExample& example, const AnalysisSettings& s) {
  if (s.of_many && s.slot < 0) return;  // each example would choose others
  const std::vector<UnitGroup> groups = capture_units(example);
  if (s.layer >= static_cast<int64_t>(groups.size())) return;  // the layer is an attention without slots
  const std::vector<size_t> layers = chosen_layers(groups.size(), s.layer, "feed-forward and slot modules");
  for (size_t i = 0; i < layers.size(); ++i) {
    const UnitGroup& group = groups[layers[i]];
    group.check_unit(s.slot);
    s.report_progress("ablated units", i, layers.size());
    for (const int64_t unit : top_units(group, s))
      ablation.without(group.path + " " + group.unit(unit), group.set(unit, 0));
  }
}

void analyze_ablations(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s,
                       const std::vector<ResidualStream>& streams) {
  Ablation ablation(example);
  std::vector<View> plots;
  without_heads(plots, ablation, example, s);
  without_sublayers(plots, ablation, streams, s);
  without_units(ablation, example, s);
  std::vector<Effect> all = ablation.all();
  if (all.empty()) return;
  std::stable_sort(all.begin(), all.end(),
                   [](const Effect& a, const Effect& b) { return a.difference > b.difference; });
  TableView table{{"ablated", "loss", "difference"}, "lrr", {}};
  std::vector<std::pair<std::string, double>> metrics = {{"ablation/loss", ablation.loss()}};
  for (const Effect& effect : all) {
    std::string name = effect.what;
    std::replace(name.begin(), name.end(), ' ', '.');
    metrics.emplace_back("ablation/without/" + name, effect.difference);
    if (static_cast<int64_t>(table.rows.size()) < s.top)
      table.rows.push_back(
          {effect.what, fixed(ablation.loss() + effect.difference, 4), signed_fixed(effect.difference, 4)});
  }
  views.push_back({"Ablation", "", "Components with the largest effect on the loss",
                   text("The loss of the example, the mean -ln p of ", ablation.targets().described(), ", is ",
                        fixed(ablation.loss(), 4),
                        " nats.  Ablated one at a time: ", pluralize(static_cast<int64_t>(all.size()), "component"),
                        " (heads, sublayers and the units with the largest values).  The smallest difference is ",
                        signed_fixed(all.back().difference, 4), ", without ", all.back().what, "."),
                   std::move(table), false, std::move(metrics), {{"ablation/loss", ablation.chance()}}});
  std::move(plots.begin(), plots.end(), std::back_inserter(views));
}

// ---- patching

// Labels the columns, with both labels where the examples differ: "Rome|Paris".
void name_columns(MapView& map, const InspectedExample::Labels& own, const InspectedExample::Labels& others) {
  map.columns = own;
  for (size_t i = 0; i < own.size(); ++i)
    if (i < others.size() && others[i] != own[i]) map.columns[i] += "|" + others[i], map.marked.push_back(i);
  map.columns.push_back("all");
}
std::string describe_changes(const MapView& map) {
  constexpr size_t max_count = 20;
  std::string all;
  for (const size_t i : std::span(map.marked).first(std::min(max_count, map.marked.size())))
    all += text(all.empty() ? "  Positions where the examples differ: " : ", ", i, " (", map.columns[i], ")");
  if (map.marked.size() > max_count) all += text(" and ", map.marked.size() - max_count, " more");
  return all.empty() ? "" : all + ".";
}

// Returns the restored fractions of one state: of each position, then of all positions at once.
std::vector<double> restored_fractions(const InspectedExample& example, const RowDifference& at,
                                       const ResidualState& own, const ResidualState& others) {
  const int64_t positions = own.value.size(0);
  const auto patch = [&](int64_t begin, int64_t end) {  // positions [begin, end)
    if (own.value.slice(begin, end).to_vector() == others.value.slice(begin, end).to_vector()) return 0.0;
    return restored_fraction(example, at, own.name, {1, begin, end}, others.value);
  };
  std::vector<double> fractions;
  for (int64_t position = 0; position < positions; ++position) fractions.push_back(patch(position, position + 1));
  fractions.push_back(patch(0, positions));
  return fractions;
}

void analyze_patches(std::vector<View>& views, const InspectedExample& example, const InspectedExample& other,
                     const AnalysisSettings& s, const std::vector<ResidualStream>& streams) {
  check_patchable(example, other);
  const std::vector<ResidualStream> other_streams = observe_streams(other).streams;
  for (size_t i = 0; i < streams.size(); ++i) {
    const ResidualState &own = streams[i].states[0], &others = other_streams.at(i).states[0];
    check(own.value.shape() == others.value.shape(), "inspect: the example and --patch_from have ", own.value.size(0),
          " and ", others.value.size(0), " positions in ", own.path,
          ", but patching requires equal numbers; give a --patch_from with as many tokens");
  }
  if (streams.empty()) return;
  const std::vector<RowDifference> all = differences(example, other, s);
  if (all[0].size() < min_difference) {
    views.push_back(no_difference_view("Ablation", example, all, s.top));
    return;
  }
  size_t states = 0, done = 0;
  for (const ResidualStream& stream : streams) states += stream.states.size();
  for (size_t i = 0; i < streams.size(); ++i) {
    const std::string& begin = streams[i].states[0].path;
    MapView map{.quantity = "fraction restored", .rows = {}, .columns = {}, .values = {}, .has_sign = true};
    map.axes = {"state after", "position"};
    std::vector<double> values;
    for (size_t k = 0; k < streams[i].states.size(); ++k) {
      const std::vector<double> fractions =
          restored_fractions(example, all[0], streams[i].states[k], other_streams[i].states[k]);
      map.rows.push_back(streams[i].states[k].path);
      values.insert(values.end(), fractions.begin(), fractions.end());
      s.report_progress("patched states", ++done, states);
    }
    name_columns(map, example.position_labels(begin), other.position_labels(begin));
    const auto rows = static_cast<int64_t>(map.rows.size()), columns = static_cast<int64_t>(map.columns.size());
    map.values = Tensor::from(Shape{1, rows, columns}, values, Dtype::f64);
    std::string file = begin;
    std::replace(file.begin(), file.end(), '.', '_');
    const std::string changes = describe_changes(map);
    views.push_back({"Ablation", "ablation/patched_" + file, "Patching from the other example",
                     "Fraction of the difference between the examples that is restored if one state of the residual "
                     "stream is taken from the other example.  The difference is in " +
                         describe(example, all[0]) + "." + changes,
                     std::move(map)});
  }
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const std::vector<ResidualStream> streams = observe_streams(example).streams;
  analyze_ablations(views, example, s, streams);
  if (s.patch_from) analyze_patches(views, example, *s.patch_from, s, streams);
}

REGISTER_ANALYSIS(ablation,
                  {.name = "ablation",
                   .description = "loss without each head, sublayer or top unit; patching from another example by "
                                  "layer and position",
                   .analyze = analyze});

}  // namespace
}  // namespace orrery::models
