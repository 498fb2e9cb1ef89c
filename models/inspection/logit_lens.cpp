// Logit lens, sizes and direct logit attribution (r_k, a_k, c_k as in residual_stream.h).
//
// Logit lens (nostalgebraist 2020, "interpreting GPT: the logit lens"): logits(r_k), the model's
// prediction if it ended after sublayer k. All r_k go through the model's own final layers, in few
// matrix products; r_n itself gives the logits.
//
// Sizes: the root mean square of r_k (TransformerLens: resid_mid, resid_post; with
// post-normalization, the normalization's input) and of a_k (attn_out, mlp_out).
//
// Direct contribution of sublayer k to the logit z of the target y:  z_y(r_n) - z_y(r_n - c_k a_k),
// the decrease of z_y if only c_k a_k is removed from the last state. If only a linear head follows
// r_n, it is W_y c_k a_k, the direct logit attribution (Elhage et al. 2021,
// transformer-circuits.pub/2021/framework; TransformerLens: logit_attrs). Contributions, the
// embedding's and the head's bias then add up to z_y. With a final normalization they do not: its
// statistics change with the removed term; logit_attribution.cpp keeps them fixed. With
// post-normalization the last state is not a sum of a_k, so there is no direct contribution.
#include <algorithm>
#include <set>

#include "engine/system/parallel.h"
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "models/inspection/base/residual_stream.h"
#include "models/inspection/base/targets.h"

namespace orrery::models {
namespace {

std::string describe_end(const std::vector<std::string>& final_norms) {
  if (final_norms.empty())
    return "Each state goes directly through the head, because no normalization precedes the head.";
  return "Each state goes through the model's final layers: " + join(final_norms, ", ") + ", then the head.";
}

Shape shape_of(const std::vector<std::string>& rows, const InspectedExample::Labels& columns) {
  return {1, static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns.size())};
}

// Summary of a row of logits. The logits of all states need too much memory for a large vocabulary.
struct Prediction {
  int32_t most_likely;
  double top_log_p;           // ln p of `most_likely`
  double target_log_p = NAN;  // ln p of the target; NaN: no target
  int64_t rank = 0;
};
using Predictions = std::vector<Prediction>;  // one per row

Predictions predictions_of(const Tensor& logits, const Targets& targets) {
  constexpr int64_t rows_at_once = 8;
  Predictions all(static_cast<size_t>(logits.size(0)));
  parallel_for(logits.size(0), rows_at_once, [&](int64_t begin, int64_t end) {
    std::vector<double> z(static_cast<size_t>(logits.size(1)));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first_of_row = row * logits.size(1);
      if (logits.dtype() == Dtype::f64)
        std::copy_n(logits.data<double>() + first_of_row, z.size(), z.begin());
      else
        std::copy_n(logits.data<float>() + first_of_row, z.size(), z.begin());
      const int32_t first = most_likely(z), target = targets.by_row[static_cast<size_t>(row)];
      Prediction& prediction = all[static_cast<size_t>(row)];
      prediction = {first, log_probability(z, first, first)};
      if (target < 0) continue;
      prediction.target_log_p = prediction.top_log_p + z[static_cast<size_t>(target)] - z[static_cast<size_t>(first)];
      prediction.rank = rank_of(z, target);
    }
  });
  return all;
}

// The states of the last stream, and the prediction from each of them.
struct Lens {
  std::vector<std::string> layers = {};
  std::vector<Predictions> predictions = {};  // per layer
  Targets targets;
  InspectedExample::Labels labels;
  int64_t choices;  // number of tokens or classes
};

Lens lens_of(const InspectedExample& example, const ResidualStream& stream, const Tensor& logits,
             const AnalysisSettings& s) {
  Lens lens{.targets = targets_of(example, logits),
            .labels = row_labels(example, stream.last().path, logits.size(0)),
            .choices = logits.size(1)};
  std::vector<Tensor> states;
  for (const ResidualState& state : stream.states) lens.layers.push_back(state.path), states.push_back(state.value);
  for_each_logits(example, stream, states, [&](size_t, const Tensor& found) {
    lens.predictions.push_back(predictions_of(found, lens.targets));
    s.report_progress("logit lens", lens.predictions.size(), states.size());
  });
  return lens;
}

// Returns row s.position; if it is -1, the row whose target has the smallest p, and the last row.
std::set<size_t> chosen_rows(const Lens& lens, const AnalysisSettings& s) {
  const auto rows = static_cast<int64_t>(lens.labels.size());
  check_usage(s.position < rows, "inspect: --position=", s.position,
              " is out of range; positions have numbers from 0 to ", rows - 1);
  if (s.position >= 0) return {static_cast<size_t>(s.position)};
  size_t hardest = lens.targets.last();
  const Predictions& end = lens.predictions.back();
  for (size_t row = 0; row < end.size(); ++row)
    if (end[row].target_log_p < end[hardest].target_log_p) hardest = row;
  return {hardest, lens.labels.size() - 1};
}

View table_of_row(const InspectedExample& example, const Lens& lens, size_t row) {
  const int32_t target = lens.targets.by_row[row];
  TableView table{{"state after", "top prediction", "p"}, "llr", {}};
  if (target >= 0) table.columns.insert(table.columns.end(), {"rank", "-ln p"}), table.alignment += "rr";
  for (size_t layer = 0; layer < lens.layers.size(); ++layer) {
    const Prediction& v = lens.predictions[layer][row];
    table.rows.push_back({lens.layers[layer], example.target_name(v.most_likely), fixed(std::exp(v.top_log_p), 3)});
    if (target < 0) continue;
    table.rows.back().push_back(std::to_string(v.rank)), table.rows.back().push_back(fixed(-v.target_log_p, 3));
  }
  const std::string caption = target < 0 ? "The target is unknown."
                                         : text("Rank and -ln p of ", lens.targets.described(), ", '",
                                                example.target_name(target), "', among ", lens.choices, ".");
  const std::string title = text("Predictions at position ", row, ", '", lens.labels[row], "'");
  return {"Logit lens", "", title, caption, std::move(table)};
}

void add_lens(std::vector<View>& views, const InspectedExample& example, const Lens& lens, const std::string& end,
              const AnalysisSettings& s) {
  LensView view;
  view.rows = lens.layers, view.columns = lens.labels, view.target = lens.targets.described();
  for (const int32_t target : lens.targets.by_row)
    view.targets.push_back(target < 0 ? "" : example.target_name(target));
  std::vector<double> tops, target_log_ps, ranks;
  std::vector<std::pair<std::string, double>> metrics, accuracies, chance;
  const auto choices = static_cast<double>(lens.choices);
  for (size_t layer = 0; layer < lens.layers.size(); ++layer) {
    double sum = 0, correct = 0, count = 0;
    for (const Prediction& v : lens.predictions[layer]) {
      view.words.push_back(example.target_name(v.most_likely));
      tops.push_back(std::exp(v.top_log_p)), target_log_ps.push_back(v.target_log_p);
      ranks.push_back(v.rank > 0 ? static_cast<double>(v.rank) : NAN);
      if (!std::isnan(v.target_log_p)) sum -= v.target_log_p, correct += v.rank == 1 ? 1 : 0, ++count;
    }
    metrics.emplace_back("logit_lens/lens_loss/" + lens.layers[layer], sum / count);
    chance.emplace_back(metrics.back().first, std::log(choices));
    accuracies.emplace_back("logit_lens/lens_accuracy/" + lens.layers[layer], correct / count);
    chance.emplace_back(accuracies.back().first, 1 / choices);
  }
  metrics.insert(metrics.end(), accuracies.begin(), accuracies.end());
  const Shape shape = shape_of(lens.layers, lens.labels);
  view.probability = Tensor::from(shape, tops, Dtype::f64);
  view.log_probability = Tensor::from(shape, target_log_ps, Dtype::f64);
  view.rank = Tensor::from(shape, ranks, Dtype::f64);
  views.push_back({"Logit lens", "logit_lens", "Top prediction after each sublayer",
                   "Prediction of the model if it ended after each sublayer.  " + end, std::move(view), false,
                   std::move(metrics), std::move(chance)});
  for (const size_t row : chosen_rows(lens, s)) views.push_back(table_of_row(example, lens, row));
}

void add_sizes(std::vector<View>& views, const std::vector<ResidualStream>& streams) {
  TableView table{{"state after", "size", "added", "added / size"}, "lrrr", {}};
  std::vector<View> plots;
  std::vector<std::pair<std::string, double>> metrics;
  for (const ResidualStream& stream : streams) {
    LineView lines{"state after", "root mean square", {}};
    LineView::Line sizes{"state", {}, {}}, added{"added", {}, {}};
    for (size_t k = 0; k < stream.states.size(); ++k) {
      const ResidualState& state = stream.states[k];
      const double size = root_mean_square(state.value), own = root_mean_square(state.added);
      lines.x_labels.push_back(state.path);
      sizes.x.push_back(static_cast<double>(k)), sizes.y.push_back(size);
      metrics.emplace_back("logit_lens/size/" + state.path, size);
      if (k > 0) metrics.emplace_back("logit_lens/added/" + state.path, own);
      if (k > 0) added.x.push_back(static_cast<double>(k)), added.y.push_back(own);
      table.rows.push_back({state.path, significant(size, 4), k > 0 ? significant(own, 4) : "",
                            k > 0 && size > 0 ? fixed(own / size, 3) : ""});
    }
    lines.lines.push_back(std::move(sizes)), lines.lines.push_back(std::move(added));
    const std::string& begin = stream.states[0].path;
    const std::string of = streams.size() == 1 ? "" : begin.substr(0, begin.find('.'));
    plots.push_back({"Logit lens", "logit_lens/size" + (of.empty() ? "" : "_" + of),
                     "Sizes along the residual stream" + (of.empty() ? "" : " of the " + of), "", std::move(lines),
                     true});
  }
  std::string caption =
      "Size: root mean square of the residual stream after each sublayer.  Added: that of the sublayer's own term.";
  if (!streams.back().is_sum)
    caption +=
        "  Normalizations act on the stream itself, so its last state is not the sum of the added terms, and none has "
        "a direct contribution to a logit.";
  views.push_back(
      {"Logit lens", "", "Size of the residual stream", caption, std::move(table), false, std::move(metrics)});
  std::move(plots.begin(), plots.end(), std::back_inserter(views));
}

void add_contributions(std::vector<View>& views, const InspectedExample& example, const ResidualStream& stream,
                       const Lens& lens, bool is_linear) {
  BarView bars{"logit", {}};
  std::vector<double> values;
  std::vector<std::string> components;
  std::vector<std::pair<std::string, double>> metrics;
  const Tensor& last = stream.last().value;
  std::vector<Tensor> states = {last, Tensor::zeros(last.shape(), last.dtype())};  // the full last state, and zeros
  for (const ResidualState& state : stream.states) states.push_back(plus(last, -state.end_scale, state.added));
  const std::vector<std::vector<double>> logits = target_logits(example, stream, states, lens.targets.by_row);
  const std::vector<double>&full = logits[0], &bias = logits[1];
  const auto add = [&](const std::string& name, const auto& of_row) {
    double total = 0, count = 0;
    components.push_back(name);
    for (size_t row = 0; row < full.size(); ++row) {
      values.push_back(of_row(row));  // NaN without a target
      if (lens.targets.by_row[row] >= 0) total += values.back(), ++count;
    }
    bars.bars.push_back({.name = name, .value = total / count});
    if (name.find(' ') == std::string::npos) metrics.emplace_back("logit_lens/contribution/" + name, total / count);
  };
  for (size_t k = 0; k < stream.states.size(); ++k)
    add(stream.states[k].path, [&](size_t row) { return full[row] - logits[k + 2][row]; });
  const auto is_nonzero = [](double logit) { return logit != 0 && !std::isnan(logit); };
  if (is_linear && std::any_of(bias.begin(), bias.end(), is_nonzero))
    add("head bias", [&](size_t row) { return bias[row]; });
  const std::string title = "Direct contribution to the logit of " + lens.targets.described(),
                    caption = std::string("Decrease of the logit if a sublayer's term is removed from the last state") +
                              (is_linear ? "; the contributions add up to the logit."
                                         : "; because of the final normalization they do not add up to the logit.");
  MapView map{.quantity = "logit", .rows = components, .columns = lens.labels, .values = {}, .has_sign = true};
  map.values = Tensor::from(shape_of(components, lens.labels), values, Dtype::f64);
  map.axes = {"", "position"}, map.none = "no target";
  views.push_back(
      {"Logit lens", "", title, caption + "  Means over the positions.", std::move(bars), false, std::move(metrics)});
  views.push_back(
      {"Logit lens", "logit_lens/contribution", "Direct contribution at each position", "", std::move(map)});
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const auto [streams, final_norms, logits] = observe_streams(example);
  if (streams.empty()) return;
  const ResidualStream& stream = streams.back();
  const Lens lens = lens_of(example, stream, logits, s);
  add_lens(views, example, lens, describe_end(final_norms), s);
  add_sizes(views, streams);
  if (stream.is_sum) add_contributions(views, example, stream, lens, final_norms.empty());
}

REGISTER_ANALYSIS(logit_lens,
                  {.name = "logit_lens",
                   .description = "logit lens, RMS of the residual stream, direct contribution of each sublayer "
                                  "to the logit",
                   .analyze = analyze});

}  // namespace
}  // namespace orrery::models
