#include "examples/orrery/commands/study_runs.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <span>

#include "engine/system/files.h"
#include "engine/system/folders.h"
#include "engine/system/hash.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "examples/orrery/commands/study_measures.h"
#include "examples/orrery/commands/train_settings.h"
#include "examples/orrery/terminal/progress.h"
#include "models/inspection/base/edit_text.h"
#include "models/study/id_names.h"
#include "models/study/pool.h"
#include "models/tasks/base/task.h"
#include "models/training/run_folder.h"
#include "models/training/run_plan.h"

namespace orrery::program {
namespace {

using models::Claim;
using models::Outcome;

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
    const std::string edits = its.edits.empty() ? "" : ", before its edits " + its.edits;  // a run is not edited
    rows.add(label_of(claim_, its, swept) + edits + more, std::move(settings), id);
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
    const std::string& same = known[models::plain_edits(variant.edits)].add(settings, variant.name);
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
