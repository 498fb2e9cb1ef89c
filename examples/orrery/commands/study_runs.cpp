#include "examples/orrery/commands/study_runs.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <span>

#include "engine/settings/registry.h"
#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "engine/system/hash.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "examples/orrery/commands/edits_argument.h"
#include "examples/orrery/commands/example_argument.h"
#include "examples/orrery/commands/few_shot.h"
#include "examples/orrery/commands/train_settings.h"
#include "examples/orrery/terminal/progress.h"
#include "models/inspection/base/analysis.h"
#include "models/metrics/base/model_metric.h"
#include "models/model.h"
#include "models/study/id_names.h"
#include "models/study/metric_names.h"
#include "models/study/pool.h"
#include "models/tasks/base/task.h"
#include "models/training/run_folder.h"
#include "models/training/run_plan.h"
#include "models/training/run_reporter.h"

namespace orrery::program {
namespace {

using models::Claim;
using models::LogRow;
using models::Outcome;

// Calls measure(trained) with the model of the run's last checkpoint, under the variant's edits.
template <class Measure>
std::map<std::string, double> measured_under_edits(const models::Variant& variant, const std::string& folder,
                                                   const Measure& measure) {
  const LoadedRun trained = load_run("study", folder);
  std::unique_ptr<models::Edits> edits;
  const auto in_claim = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      fail(variant.location, ": ", error.what());
    }
  };
  in_claim([&] { edits = begin_edits("study", variant.edits, *trained.model, false); });
  std::map<std::string, double> found = measure(trained);
  in_claim([&] { edits->check_applied(); });
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

// Returns a path of data; if there is none, that in the folder of data sets, then that near the
// claim; "" if there is none either.
std::string find_path(const std::string& path, const std::string& claim, const std::string& folder) {
  const std::string there = folder + "/" + path;
  if (file_exists(path) || folder_exists(path)) return path;
  return !folder.empty() && (file_exists(there) || folder_exists(there)) ? there : models::resolve_path(claim, path);
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

// Returns a metric's rows. A derived claim uses only step 1, logged before its update; an edited model has none of the
// rows of its training.
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

// Throws if the claim's inputs are unreadable or do not fit the outcome.
void check_measured(const Claim& claim, const std::string& folder, const Outcome& outcome) {
  models::check_log(folder, outcome);
  const auto has_edits = [](const models::Variant& variant) { return !variant.edits.empty(); };
  const bool needs_weights = !claim.analyses().empty() || claim.measures_few_shot() ||
                             std::any_of(claim.variants.begin(), claim.variants.end(), has_edits);
  if (needs_weights && outcome.kind == Outcome::Kind::done) models::checkpoint_at(folder);
}

// Throws if a metric is missing. The error explains how to enable a registered metric.
void check_metrics(const Claim& claim, const std::string& variant, const models::RunLog& rows) {
  const std::vector<std::string> names = models::metric_names(rows);
  for (size_t m = 0; m < claim.metrics.size(); ++m) {
    if (!claim.is_measured(m, variant)) continue;
    const std::string where = claim.metric_locations[m] + ": the metric of " + variant;
    for (const std::string& pattern : claim.metrics[m].patterns()) {
      const std::string metric_name = pattern.substr(0, pattern.find('/'));
      const bool logged = std::any_of(names.begin(), names.end(),
                                      [&](const std::string& name) { return name.starts_with(metric_name + "/"); });
      check(logged || !models::model_metrics().find(metric_name), claim.metric_locations[m], ": the runs of ", variant,
            " do not log '", pattern, "'; if the model has this metric, add metrics = \"", metric_name, "\" to [base]");
      models::matching_metrics(where, names, pattern);
    }
    try {
      models::check_measurable(claim.metrics[m], rows);
    } catch (const Error& error) {
      fail(where, ": ", error.what());
    }
  }
}

bool uses_divergence(const Claim& claim) {
  return std::any_of(claim.metrics.begin(), claim.metrics.end(), [](const models::MetricExpression& metric) {
    const std::vector<std::string> patterns = metric.patterns();
    return std::any_of(patterns.begin(), patterns.end(), names_divergence);
  });
}

int64_t unused_seed(const Claim& claim) {
  int64_t seed = 0;
  while (std::find(claim.seeds.begin(), claim.seeds.end(), seed) != claim.seeds.end()) ++seed;
  return seed;
}

template <class F>
void for_each_cell(const Claim& claim, const F& f) {
  for (size_t v = 0; v < claim.variants.size(); ++v)
    for (size_t s = 0; s < claim.swept_values(); ++s) f(v, s);
}

class Study {
 public:
  Study(const Claim& claim, const PoolOptions& options, const std::string& data, FolderLock& folder)
      : claim_(claim), options_(options), data_(data), folder_(folder), ids_(options.folder, options.retrain) {
    options_.check_files = [&claim](const std::string& folder, const Outcome& outcome) {
      check_measured(claim, folder, outcome);
    };
  }

  StudyRuns train() {
    std::vector<double> learning_rates(claim_.variants.size(), 0);
    if (claim_.learning_rates.size() == 1) learning_rates.assign(learning_rates.size(), claim_.learning_rates[0]);
    if (claim_.learning_rates.size() > 1 && !choose(learning_rates)) return std::move(studied_);
    RunRows& rows = studied_.rows;
    Ids own, common;
    for_each_cell(claim_, [&](size_t v, size_t s) {
      own.push_back(add_seeds(rows, v, s, learning_rates[v], ""));
      const double at = studied_.shared_lr;
      const bool same = at == 0 || at == learning_rates[v];
      common.push_back(same ? own.back() : add_seeds(rows, v, s, at, " learning_rate=" + print_number(at)));
    });
    train_these(rows);
    if (ends()) return std::move(studied_);
    studied_.measured = measure(own);
    if (common != own) studied_.at_shared_lr = measure(common);
    return std::move(studied_);
  }

 private:
  using Ids = std::vector<std::vector<std::string>>;  // run ids per seed, for each variant and swept value

  std::vector<std::string> add_seeds(RunRows& rows, size_t v, size_t s, double lr, const std::string& more) {
    std::vector<std::string> ids;
    for (const int64_t seed : claim_.seeds) ids.push_back(add(rows, v, s, seed, lr, more));
    return ids;
  }

  // Measuring needs all runs.
  bool ends() const { return studied_.signal != 0 || count_failed(studied_.outcomes) > 0; }

  // Chooses learning rates, per variant and a shared one, by validation loss at an unused seed.
  bool choose(std::vector<double>& learning_rates) {
    const int64_t seed = unused_seed(claim_);
    const size_t s = claim_.middle_value(), count = claim_.learning_rates.size();
    RunRows search;
    Ids ids(claim_.variants.size());
    for (size_t v = 0; v < ids.size(); ++v)
      for (const double lr : claim_.learning_rates)
        ids[v].push_back(add(search, v, s, seed, lr, " learning_rate=" + print_number(lr)));
    train_these(search);
    if (ends()) return false;
    constexpr double diverges = 1e9;  // a rate with a diverged variant is the last choice as shared rate
    std::vector<double> sums(count, 0);
    for (size_t v = 0; v < ids.size(); ++v) {
      std::vector<double> losses;
      for (const std::string& id : ids[v]) {
        const Outcome& outcome = studied_.outcomes.at(id);
        const auto loss = outcome.metrics.find("validation_loss");
        const bool done = outcome.kind == Outcome::Kind::done && loss != outcome.metrics.end();
        losses.push_back(done ? loss->second : diverges);
      }
      for (size_t r = 0; r < count; ++r) sums[r] += losses[r];
      learning_rates[v] = claim_.learning_rates[argmin(losses)];
      studied_.learning_rates.emplace_back(claim_.variants[v].name, learning_rates[v]);
    }
    studied_.shared_lr = claim_.learning_rates[argmin(sums)];
    return true;
  }
  static size_t argmin(const std::vector<double>& x) {
    return static_cast<size_t>(std::min_element(x.begin(), x.end()) - x.begin());
  }

  std::string add(RunRows& rows, size_t variant, size_t swept, int64_t seed, double lr, const std::string& more) {
    const models::Variant& its = claim_.variants[variant];
    models::TrainSettings settings = settings_of_study(claim_, its, swept, seed, lr, data_);
    const std::string id = ids_.of(models::run_hash(settings));
    steps_of_[id] = settings.steps;
    rows.add(label_of(claim_, its, swept) + more, std::move(settings), id);
    variants_of_[id].insert(variant);
    return id;
  }

  // The first finished run of each variant is checked for the claim's metrics.
  void train_these(const RunRows& rows) {
    const RunFormatter formatter{[](const Outcomes&) { return Table({}, ""); },
                                 [&](const Outcome& outcome) {
                                   const auto loss = outcome.metrics.find("validation_loss");
                                   return loss == outcome.metrics.end() ? ""
                                                                        : "validation loss " + fixed(loss->second, 4);
                                 }};
    const auto on_finished = [&](const PooledRun& run, const Outcome& outcome) {
      for (const size_t v : variants_of_.at(run.id))
        if (const models::Variant& variant = claim_.variants[v];
            outcome.kind == Outcome::Kind::done && checked_.insert(variant.name).second)
          check_metrics(claim_, variant.name,
                        rows_of(claim_, variant, options_.folder + "/" + run.id, outcome, data_));
    };
    used_.merge(rows.ids());
    folder_.keep();
    models::record_use(options_.folder, folder_.folder(), used_);
    TrainedRuns trained = train_rows(rows, options_, formatter, on_finished);
    studied_.signal = trained.signal;
    for (auto& [id, outcome] : trained.outcomes) {
      if (!studied_.outcomes.contains(id)) studied_.minutes += outcome.seconds / 60;
      studied_.outcomes[id] = std::move(outcome);
    }
  }

  models::Measurements measure(const Ids& ids) const {
    const Progress progress("measuring the runs");
    models::Measurements measured;
    measured.values.assign(claim_.metrics.size(), {});
    for (auto& each : measured.values) each.resize(claim_.variants.size());
    size_t cell = 0;
    for_each_cell(claim_, [&](size_t v, size_t s) {
      for (auto& each : measured.values) each[v].emplace_back(claim_.seeds.size());
      for (size_t i = 0; i < claim_.seeds.size(); ++i) measure_run(measured, ids[cell][i], v, s, i);
      ++cell;
    });
    return measured;
  }
  void measure_run(models::Measurements& measured, const std::string& id, size_t v, size_t s, size_t sample) const {
    const models::Variant& variant = claim_.variants[v];
    const Outcome& outcome = studied_.outcomes.at(id);
    const auto miss = [&](const std::string& why) {
      measured.missing.push_back(text(label_of(claim_, variant, s), " seed=", claim_.seeds[sample], ": ", why));
    };
    const std::string folder = options_.folder + "/" + id;
    const bool is_done = outcome.kind == Outcome::Kind::done;
    const bool counts = outcome.kind == Outcome::Kind::diverged &&
                        (uses_divergence(claim_) || models::is_complete(folder, steps_of_.at(id)));
    if (!is_done && !counts) return miss(outcome.why);
    const models::RunLog rows = rows_of(claim_, variant, folder, outcome, data_);
    for (size_t m = 0; m < claim_.metrics.size(); ++m) {
      if (!claim_.is_measured(m, variant.name)) continue;
      try {
        measured.values[m][v][s][sample] = models::measure(claim_.metrics[m], rows, claim_.swept_number(s));
      } catch (const Error& error) {
        miss(is_done ? error.what() : outcome.why);  // a diverged run lacks the metrics of analyses
      }
    }
  }

  const Claim& claim_;
  PoolOptions options_;
  const std::string& data_;
  FolderLock& folder_;
  const models::RunIds ids_;
  std::map<std::string, std::set<size_t>> variants_of_;  // run id -> variants, which may differ in their edits
  std::map<std::string, int64_t> steps_of_;        // run id -> steps of its settings
  std::set<std::string> checked_;                  // variants
  std::set<std::string> used_;                     // runs
  StudyRuns studied_;
};

}  // namespace

namespace {

// Returns the held-out tokens; `otherwise` if the data cannot be read, which the run reports.
int64_t held_out_tokens(models::TrainSettings settings, int64_t otherwise) {
  try {
    const models::RunStart start(settings, "");
    return models::make_task(settings, start)->validation_units();
  } catch (const Error&) {
    return otherwise;
  }
}

// Shortens validations, because a smoke run does not need the whole split.
void shorten_validations(models::TrainSettings& settings) {
  const std::vector<Setting> members = settings_of(settings);
  for (const auto& [key, most] : {std::pair("validation_tokens", 1024), std::pair("training_loss_tokens", 1024),
                                  std::pair("validation_sequences", 16), std::pair("training_loss_images", 16)}) {
    const Setting* const setting = find_setting(members, key);
    if (!setting) continue;
    int64_t& value = *std::get<int64_t*>(setting->value);
    const bool means_all = value == 0 && std::string_view(key) == "validation_tokens";
    value = std::min<int64_t>(means_all ? held_out_tokens(settings, most) : value, most);
  }
}

// Searches missing data sets in the folder of data sets, then near the claim.
void find_data(models::TrainSettings& settings, const std::string& claim, const std::string& folder) {
  const std::vector<Setting> members = settings_of(settings);
  for (const char* key : models::paths_of_data) {
    const std::string path = models::setting_of(settings, key);
    if (path.empty()) continue;
    if (const std::string there = find_path(path, claim, folder); !there.empty() && there != path)
      set_setting(members, "study", key, there);
  }
}

// Hashes parsed values: comments and the order of lines do not matter.
std::string sha256_of_config(const std::string& path) {
  const std::string sets = models::config_in_id(path);
  return sha256(std::as_bytes(std::span(sets)));
}

// Hashes a file, or all files of a folder with their names.
std::string hash_of_data(const std::string& path) {
  if (!folder_exists(path)) return sha256_of_file(path);
  std::string all;
  for (const std::string& file : files_below(path)) all += file.substr(path.size()) + " " + sha256_of_file(file) + "\n";
  return sha256(std::as_bytes(std::span(all)));
}

}  // namespace

bool names_divergence(const std::string& pattern) { return ::fnmatch(pattern.c_str(), diverged, 0) == 0; }

size_t count_runs(const Claim& claim) {
  std::set<Assignments> distinct;  // variants that differ by edits alone share their runs
  for (const models::Variant& variant : claim.variants) distinct.insert(variant.settings);
  const size_t cells = distinct.size() * claim.swept_values(), learning_rates = claim.learning_rates.size();
  return cells * claim.seeds.size() + (learning_rates > 1 ? distinct.size() * learning_rates : 0);
}

StudyRuns train_claim(const Claim& claim, const PoolOptions& options, const std::string& data, FolderLock& folder) {
  return Study(claim, options, data, folder).train();
}

models::TrainSettings settings_of_study(const Claim& claim, const models::Variant& variant, size_t swept, int64_t seed,
                                        double lr, const std::string& data) {
  Arguments words;
  if (!claim.config.empty()) words.push_back("--config=" + claim.config);
  for (const auto& [key, value] : models::settings_of_run(claim, variant, swept, seed, lr))
    words.push_back("--" + key + "=" + value);
  try {
    models::TrainSettings settings = read_train_settings("study", words);
    find_data(settings, claim.path, data);
    if (claim.smoke) shorten_validations(settings);
    return settings;
  } catch (const Error& error) {
    fail(claim.path, ": ", label_of(claim, variant, swept), ": ", error.what());
  }
}

void check_variants_differ(const Claim& claim, const std::string& data) {
  std::map<std::string, DistinctSettings> known;  // by edits
  for (const models::Variant& variant : claim.variants) {
    const auto settings = settings_of_study(claim, variant, 0, claim.seeds[0], 0, data);
    const std::string& same = known[variant.edits].add(settings, variant.name);
    check(same == variant.name, claim.path, ": the variants '", same, "' and '", variant.name,
          "' have the same settings, so nothing could differ; change a setting of one, or leave it out");
  }
  if (claim.sweep.empty() || claim.smoke) return;  // a smoke run sets the steps
  DistinctSettings swept;
  for (size_t s = 0; s < claim.swept_values(); ++s) {
    const std::string label = claim.sweep[0].key + "=" + claim.swept_text(s);
    const std::string& same = swept.add(settings_of_study(claim, claim.variants[0], s, claim.seeds[0], 0, data), label);
    check(same == label, claim.path, ": the swept values ", same, " and ", label,
          " give the same settings, so nothing could differ; leave one of them out");
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

std::map<std::string, std::set<std::string>> claim_inputs(const Claim& claim, const std::string& data) {
  std::map<std::string, std::set<std::string>> config, all;
  if (!claim.config.empty()) config["config"].insert(sha256_of_config(claim.config));
  all = config;
  try {
    for_each_cell(claim, [&](size_t v, size_t s) {
      const auto settings = settings_of_study(claim, claim.variants[v], s, claim.seeds[0], 0, data);
      for (const auto& [what, file] : models::input_fingerprints(settings))
        if (!file.sha256.empty()) all[what.substr(0, what.find(' '))].insert(file.sha256);
    });
    for (const std::string& set : claim.few_shot.sets())
      if (const std::string path = find_path(set, claim.path, data); !path.empty())
        all["few_shot"].insert(hash_of_data(path));
  } catch (const Error&) {
    return config;
  }
  return all;
}

std::string label_of(const Claim& claim, const models::Variant& variant, size_t swept) {
  std::string label = variant.name;
  for (const models::SweptKey& key : claim.sweep) label += " " + key.key + "=" + key.values[swept];
  return label;
}

}  // namespace orrery::program
