// The positions of the example, the loss at each of them, and the most likely tokens or classes.
#include "engine/types/format.h"
#include "engine/types/usage_error.h"
#include "models/inspection/base/analysis.h"
#include "models/inspection/base/targets.h"

namespace orrery::models {
namespace {

constexpr const char* group = "Predictions";

bool has_tokens(const InspectedExample& example) { return example.distance_unit() == "tokens"; }

// Returns true if every known target is the next position's token.
bool predicts_next_tokens(const InspectedExample& example, const InspectedExample::Labels& labels) {
  const std::vector<int32_t>& targets = example.targets();
  if (targets.size() != labels.size()) return false;
  for (size_t i = 0; i + 1 < labels.size(); ++i)
    if (targets[i] >= 0 && example.target_name(targets[i]) != labels[i + 1]) return false;
  return true;
}

View input_of(const InspectedExample& example, const InspectedExample::Labels& labels,
              const std::vector<double>& log_ps) {
  TokensView tokens{"-ln p", labels, std::vector<double>(labels.size(), NAN)};
  const bool next = predicts_next_tokens(example, labels);
  for (size_t i = next ? 1 : 0; i < labels.size() && log_ps.size() == labels.size(); ++i)
    tokens.values[i] = -log_ps[next ? i - 1 : i];
  return {group, "", "Input",
          text("-ln p of ", next ? "each token, given the tokens before it." : "the target at a position."),
          std::move(tokens)};
}

ChoicesView choices_of(const InspectedExample& example, const Tensor& logits, const Targets& targets, int64_t top) {
  ChoicesView view;
  view.positions = row_labels(example, "", logits.size(0));
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const std::vector<double> z = logits[row].to_vector();
    const std::vector<int32_t> order = largest(z, top);
    const auto choice = [&](int32_t index) {
      return ChoicesView::Choice{example.target_name(index), std::exp(log_probability(z, index, order[0]))};
    };
    view.choices.emplace_back();
    for (const int32_t index : order) view.choices.back().push_back(choice(index));
    const int32_t target = targets.known ? targets.by_row[static_cast<size_t>(row)] : -1;
    view.targets.push_back(target < 0 ? ChoicesView::Choice{"", NAN} : choice(target));
  }
  return view;
}

void analyze(std::vector<View>& views, const InspectedExample& example, const AnalysisSettings& s) {
  const Tensor logits = example.run();
  const Targets targets = targets_of(example, logits);
  const InspectedExample::Labels &own = example.position_labels(""), &source = example.position_labels("encoder");
  if (has_tokens(example)) {
    views.push_back(input_of(example, own, log_probabilities(logits, example.targets())));
    if (&source != &own) views.insert(views.end() - 1, {group, "", "Source", "", TokensView{"", source, {}}});
  }
  if (const Tensor image = example.image(); image.defined())
    views.push_back({group, "", "Input", "", ImageView{image, own}});
  ChoicesView choices = choices_of(example, logits, targets, std::max<int64_t>(s.top, 1));
  check_usage(s.position < logits.size(0), "inspect: --position=", s.position,
              " is out of range; positions have numbers from 0 to ", logits.size(0) - 1);
  choices.shown = static_cast<size_t>(s.position < 0 ? logits.size(0) - 1 : s.position);
  views.push_back(
      {group, "", has_tokens(example) ? "Most likely tokens" : "Most likely classes", "", std::move(choices)});
  views.back().metrics = {{"predictions/loss", example.loss(logits)}};
}

REGISTER_ANALYSIS(predictions, {.name = "predictions",
                                .description = "loss at each position of the example, and the most likely tokens or "
                                               "classes",
                                .analyze = analyze});

}  // namespace
}  // namespace orrery::models
