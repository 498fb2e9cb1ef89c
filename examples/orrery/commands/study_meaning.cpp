// Claims whose metrics have another meaning in some of the compared runs.
#include <algorithm>
#include <functional>
#include <map>

#include "engine/types/check.h"
#include "examples/orrery/commands/study_runs.h"
#include "models/study/runs.h"
#include "models/training/loss_settings.h"

namespace orrery::program {
namespace {

using models::Claim;

// Returns the patterns of a metric outside a difference or ratio of two logged metrics of the run.
std::vector<std::string> patterns_alone(const models::MetricExpression& metric) {
  if (metric.arguments.empty()) return metric.patterns();
  const auto is_logged = [](const models::MetricExpression& part) {
    const std::vector<std::string> patterns = part.patterns();
    return std::any_of(patterns.begin(), patterns.end(), std::not_fn(names_divergence));
  };
  if ((metric.name == "difference" || metric.name == "ratio") &&
      std::all_of(metric.arguments.begin(), metric.arguments.end(), is_logged))
    return {};
  std::vector<std::string> all;
  for (const models::MetricExpression& part : metric.arguments)
    for (std::string& each : patterns_alone(part)) all.push_back(std::move(each));
  return all;
}

// Returns the settings alone if the inputs cannot be read: its run reports that error.
models::LossMeaning read_meaning(const models::TrainSettings& settings) {
  try {
    return models::identify_run(settings).meaning;
  } catch (const Error&) {
    return {settings};
  }
}

}  // namespace

std::vector<std::string> notes_of_meaning(const Claim& claim, const std::string& data) {
  std::vector<std::string> notes;
  std::map<std::pair<const models::Variant*, size_t>, models::LossMeaning> read;
  const auto meaning = [&](const models::Variant& variant, size_t swept) {
    const std::pair cell(&variant, swept);
    auto found = read.find(cell);
    if (found == read.end())
      found = read.emplace(cell, read_meaning(settings_of_study(claim, variant, swept, claim.seeds[0], 0, data))).first;
    return found->second;
  };
  using Cells = std::vector<std::pair<const models::Variant*, size_t>>;
  const auto add = [&](size_t m, const std::string& which, const Cells& cells, bool refuse) {
    const models::MetricExpression& metric = claim.metrics[m];
    const std::vector<std::string> alone = patterns_alone(metric);
    for (const std::string& pattern : metric.patterns())
      for (const std::string& name : models::metrics_with_meaning(pattern)) {
        std::vector<models::LossMeaning> runs;
        for (const auto& [variant, swept] : cells) runs.push_back(meaning(*variant, swept));
        const std::string note = models::comparability_note(name, runs);
        const std::string sentence = claim.metric_locations[m] + ": " + which + ": " + note;
        const bool by_loss = models::is_loss(name) && std::find(alone.begin(), alone.end(), pattern) != alone.end();
        check(note.empty() || !refuse || !by_loss, sentence);
        if (!note.empty() && std::find(notes.begin(), notes.end(), sentence) == notes.end()) notes.push_back(sentence);
      }
  };
  for (const models::Comparison& each : claim.refuted_if) {
    Cells both;
    for (const models::Variant& variant : claim.variants)
      if (each.of_variants && (variant.name == each.left || variant.name == each.right))
        both.emplace_back(&variant, size_t{0});
    add(each.metric, "variants '" + each.left + "' and '" + each.right + "'", both, true);
  }
  for (size_t m = 0; m < claim.metrics.size(); ++m) {
    Cells swept;
    for (size_t s = 0; claim.metrics[m].is_of_sweep() && s < claim.swept_values(); ++s)
      swept.emplace_back(&claim.variants[0], s);
    add(m, "values of " + (claim.sweep.empty() ? "" : claim.sweep[0].key), swept, false);
  }
  return notes;
}

}  // namespace orrery::program
