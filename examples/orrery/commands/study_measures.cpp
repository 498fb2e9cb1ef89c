#include "examples/orrery/commands/study_measures.h"

#include <algorithm>
#include <map>
#include <vector>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "engine/types/check.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/example_argument.h"
#include "examples/orrery/commands/few_shot.h"
#include "examples/orrery/commands/study_runs.h"
#include "examples/orrery/terminal/progress.h"
#include "models/inspection/base/analysis.h"
#include "models/metrics/base/model_metric.h"
#include "models/model.h"
#include "models/study/metric_names.h"
#include "models/tasks/base/task.h"
#include "models/training/run_folder.h"
#include "models/training/run_plan.h"
#include "models/training/run_reporter.h"

namespace orrery::program {
namespace {

using models::Claim;
using models::LogRow;
using models::Outcome;

// Calls work(); an error names the variant's place in the claim.
void in_variant(const models::Variant& variant, const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    fail(variant.location, ": ", error.what());
  }
}

// Calls measure(trained) with the model of the run's last checkpoint, under the variant's edits.
template <class Measure>
std::map<std::string, double> measured_under_edits(const models::Variant& variant, const std::string& folder,
                                                   const Measure& measure) {
  const LoadedRun trained = load_run("study", folder);
  std::unique_ptr<models::Edits> edits;
  in_variant(variant, [&] {
    edits = begin_edits("study", variant.edits, *trained.model, passes_of_validation(*trained.model));
  });
  std::map<std::string, double> found = measure(trained);
  in_variant(variant, [&] { edits->check_applied(); });
  return found;
}

// Returns the metrics of a validation, by their names in a log.
std::map<std::string, double> validate(const LoadedRun& trained) {
  AnySettings task_settings = trained.settings.task_settings, model_settings = trained.settings.model_settings;
  const auto task =
      models::tasks().at(trained.settings.task).make(task_settings, model_settings, evaluation_options(trained));
  const auto row = models::log_row(task->validate(*trained.model, {}).value());
  return {row.begin(), row.end()};
}

// Returns the metrics of analyses of a trained model on the claim's example.
std::map<std::string, double> analyze_model(const Claim& claim, const LoadedRun& trained, const std::string& analyses) {
  try {
    const auto inspected = make_example("study", trained, claim.example, false);  // a claim states its text
    return models::metrics_of(models::analyze(*inspected, analyses, {}));
  } catch (const Error& error) {
    fail(claim.example_location, ": [example]: ", error.what());
  }
}

FewShotOptions few_shot_options(const Claim& claim) {
  const models::FewShotInput& input = claim.few_shot;
  return {.few_shot = input.shots,
          .seeds = input.seeds,
          .features = input.features,
          .text_column = input.text_column,
          .label_column = input.label_column};
}

// Calls take(set, task) for each data set of [few_shot], with the task's settings for it.
template <class Take>
void each_few_shot_set(const Claim& claim, const std::string& data, AnySettings task, const Take& take) {
  const std::string where = claim.few_shot.location + ": [few_shot]: ";
  for (const std::string& set : claim.few_shot.sets()) {
    const std::string path = find_path(set, claim.path, data);
    check(!path.empty(), where, "cannot find ", set, "; give the folder of data sets with --data=FOLDER");
    models::setting_of<std::string>(task, "data") = path;
    models::setting_of<std::string>(task, "validation_data") = "";
    try {
      take(set, task);
    } catch (const Error& error) {
      fail(where, error.what());
    }
  }
}

// Returns the mean accuracies of linear probes on a trained model, few_shot/NAME.
std::map<std::string, double> probe_model(const Claim& claim, const LoadedRun& trained, const std::string& data) {
  std::map<std::string, double> found;
  each_few_shot_set(claim, data, trained.settings.task_settings, [&](const std::string& set, const AnySettings& task) {
    found[models::few_shot_metric + models::FewShotInput::name_of(set)] =
        evaluate_few_shot(trained, task, few_shot_options(claim)).accuracy();
  });
  return found;
}

}  // namespace

std::string find_path(const std::string& path, const std::string& claim, const std::string& folder) {
  const std::string there = folder + "/" + path;
  if (file_exists(path) || folder_exists(path)) return path;
  return !folder.empty() && (file_exists(there) || folder_exists(there)) ? there : models::resolve_path(claim, path);
}

models::RunLog rows_of(const Claim& claim, const models::Variant& variant, const std::string& folder,
                       const Outcome& outcome, const std::string& data) {
  auto rows = models::RunLog::of_run(folder);
  if (claim.kind == Claim::Kind::derived)
    rows.restrict_rows([](const LogRow& row) { return row.step == 1 && row.metrics.contains("loss"); });
  if (!variant.edits.empty()) rows.restrict_rows([](const LogRow&) { return false; });
  rows.add({outcome.step, {{diverged, outcome.kind == Outcome::Kind::diverged ? 1.0 : 0.0}}});
  if (outcome.kind != Outcome::Kind::done) return rows;
  const auto add = [&](const auto& measure) {
    rows.add({outcome.step, measured_under_edits(variant, folder, measure)});
  };
  if (!variant.edits.empty()) add(validate);
  if (const std::vector<std::string> analyses = claim.analyses(); !analyses.empty())
    add([&](const LoadedRun& trained) { return analyze_model(claim, trained, join(analyses)); });
  if (claim.measures_few_shot()) add([&](const LoadedRun& trained) { return probe_model(claim, trained, data); });
  return rows;
}

void check_measured(const Claim& claim, const std::string& folder, const Outcome& outcome) {
  models::check_log(folder, outcome);
  const auto has_edits = [](const models::Variant& variant) { return !variant.edits.empty(); };
  const bool needs_weights = !claim.analyses().empty() || claim.measures_few_shot() ||
                             std::any_of(claim.variants.begin(), claim.variants.end(), has_edits);
  if (needs_weights && outcome.kind == Outcome::Kind::done) models::checkpoint_at(folder);
}

void check_metrics(const Claim& claim, const std::string& variant, const models::RunLog& rows) {
  const std::vector<std::string> names = models::metric_names(rows);
  const bool edited = std::any_of(claim.variants.begin(), claim.variants.end(), [&](const models::Variant& each) {
    return each.name == variant && !each.edits.empty();
  });
  for (size_t m = 0; m < claim.metrics.size(); ++m) {
    if (!claim.is_measured(m, variant)) continue;
    const std::string where = claim.metric_locations[m] + ": the metric of " + variant;
    for (const std::string& pattern : claim.metrics[m].patterns()) {
      const std::string metric_name = pattern.substr(0, pattern.find('/'));
      const bool logged = std::any_of(names.begin(), names.end(),
                                      [&](const std::string& name) { return name.starts_with(metric_name + "/"); });
      check(logged || !models::model_metrics().find(metric_name), claim.metric_locations[m], ": the runs of ", variant,
            " do not log '", pattern, "'; ",
            edited ? "a variant with edits has no metrics of steps: choose one of validation, or of an analysis"
                   : text("if the model has this metric, add metrics = \"", metric_name, "\" to [base]"));
      models::matching_metrics(where, names, pattern);
    }
    try {
      models::check_measurable(claim.metrics[m], rows);
    } catch (const Error& error) {
      fail(where, ": ", error.what());
    }
  }
}

void check_edits(const Claim& claim, const std::string& data) {
  for (const models::Variant& variant : claim.variants) {
    if (variant.edits.empty()) continue;
    auto settings = settings_of_study(claim, variant, 0, claim.seeds[0], 0, data);
    const models::RunStart start(settings, "");
    const auto task = models::make_task(settings, start);  // sets what the data determine, such as the vocabulary
    const auto model = models::make_model(settings);
    in_variant(variant, [&] { begin_edits("study", variant.edits, *model, passes_of_validation(*model)); });
  }
}

void check_few_shot_sets(const Claim& claim, const std::string& data) {
  if (!claim.measures_few_shot()) return;
  const Progress progress("reading the data of few_shot");
  const auto settings = settings_of_study(claim, claim.variants[0], 0, claim.seeds[0], 0, data);
  each_few_shot_set(claim, data, settings.task_settings, [&](const std::string&, const AnySettings& task) {
    check_few_shot_data(settings, task, few_shot_options(claim));
  });
}

}  // namespace orrery::program
