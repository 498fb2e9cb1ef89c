#include "examples/orrery/study_runs.h"

#include <algorithm>
#include <set>

#include "engine/base/check.h"
#include "engine/base/registry.h"
#include "engine/base/wording.h"
#include "examples/orrery/subject.h"
#include "examples/orrery/train_settings.h"
#include "models/figures/base/figure.h"
#include "models/inspection/base/look.h"
#include "models/study/figure_names.h"

namespace orrery::program {
namespace {

using models::Claim;
using models::LogRow;
using models::Outcome;

constexpr const char* diverged = "diverged";  // a figure that no log has

// What looks tell of the run's last checkpoint and the claim's example.
std::map<std::string, double> look_inside(const Claim& claim, const std::string& folder, const std::string& looks) {
  const Trained trained = read_trained("study", folder);
  const auto subject = make_subject("study", trained, claim.example);
  return models::figures_of(models::look_at(*subject, looks, {}));
}

// What the metric is measured of: a derived claim looks at the first step alone, whose figures come before its update.
std::vector<LogRow> rows_of(const Claim& claim, const std::string& folder, const Outcome& outcome) {
  std::vector<LogRow> rows = models::read_run_log(folder);
  if (claim.kind == Claim::Kind::derived)
    std::erase_if(rows, [](const LogRow& row) { return row.step != 1 || !row.figures.contains("loss"); });
  rows.push_back({outcome.step, {{diverged, outcome.kind == Outcome::Kind::diverged ? 1.0 : 0.0}}});
  if (const std::vector<std::string> looks = claim.looks(); !looks.empty() && outcome.kind == Outcome::Kind::done)
    rows.push_back({outcome.step, look_inside(claim, folder, join(looks))});
  return rows;
}

// A figure that is registered, and only has not been asked for, is told as such.
void check_figures(const Claim& claim, const std::string& variant, std::span<const LogRow> rows) {
  const std::vector<std::string> names = models::figure_names(rows);
  for (size_t m = 0; m < claim.metrics.size(); ++m) {
    if (!claim.concerns(m, variant)) continue;
    for (const std::string& pattern : claim.metrics[m].figures()) {
      const std::string figure = pattern.substr(0, pattern.find('/'));
      const bool logged = std::any_of(names.begin(), names.end(),
                                      [&](const std::string& name) { return name.starts_with(figure + "/"); });
      check(logged || !models::figures().find(figure), claim.path, ": the runs of ", variant, " do not log '", pattern,
            "'; add figures = \"", figure, "\" to [base], if the model has that");
      models::fitting_figures(claim.path + ": the metric of " + variant, names, pattern);
    }
  }
}

bool asks_for_divergence(const Claim& claim) {
  return std::any_of(claim.metrics.begin(), claim.metrics.end(), [](const models::Metric& metric) {
    const std::vector<std::string> figures = metric.figures();
    return std::find(figures.begin(), figures.end(), diverged) != figures.end();
  });
}

int64_t further_seed(const Claim& claim) {
  int64_t seed = 0;
  while (std::find(claim.seeds.begin(), claim.seeds.end(), seed) != claim.seeds.end()) ++seed;
  return seed;
}

template <class F>
void for_each_place(const Claim& claim, const F& f) {
  for (size_t v = 0; v < claim.variants.size(); ++v)
    for (size_t s = 0; s < claim.swept_values(); ++s) f(v, s);
}

class Study {
 public:
  Study(const Claim& claim, const PoolOptions& options) : claim_(claim), options_(options) {}

  StudiedRuns train() {
    std::vector<double> rates(claim_.variants.size() * claim_.swept_values(), 0);
    if (claim_.learning_rates.size() == 1) rates.assign(rates.size(), claim_.learning_rates[0]);
    if (claim_.learning_rates.size() > 1 && !choose(rates)) return std::move(studied_);
    RunRows& rows = studied_.rows;
    std::vector<std::vector<std::string>> keys;
    for_each_place(claim_, [&](size_t v, size_t s) {
      keys.emplace_back();
      for (const int64_t seed : claim_.seeds) keys.back().push_back(add(rows, v, s, seed, rates[keys.size() - 1], ""));
    });
    train_these(rows);
    if (studied_.signal == 0) measure(keys);
    return std::move(studied_);
  }

 private:
  // The lowest validation loss at a seed that is none of those that are compared.
  bool choose(std::vector<double>& rates) {
    const int64_t seed = further_seed(claim_);
    RunRows search;
    std::vector<std::vector<std::string>> keys;
    for_each_place(claim_, [&](size_t v, size_t s) {
      keys.emplace_back();
      for (const double rate : claim_.learning_rates)
        keys.back().push_back(add(search, v, s, seed, rate, " learning_rate=" + print_number(rate)));
    });
    train_these(search);
    if (studied_.signal != 0) {
      studied_.rows = std::move(search);
      return false;
    }
    for (size_t place = 0; place < keys.size(); ++place) {
      std::optional<double> lowest;
      rates[place] = claim_.learning_rates[0];
      for (size_t r = 0; r < claim_.learning_rates.size(); ++r) {
        const Outcome& outcome = studied_.outcomes.at(keys[place][r]);
        const auto loss = outcome.figures.find("validation_loss");
        if (outcome.kind != Outcome::Kind::done || loss == outcome.figures.end()) continue;
        if (!lowest || loss->second < *lowest) lowest = loss->second, rates[place] = claim_.learning_rates[r];
      }
      studied_.rates.push_back(print_number(rates[place]));
    }
    return true;
  }

  std::string add(RunRows& rows, size_t variant, size_t swept, int64_t seed, double rate, const std::string& more) {
    const models::Variant& its = claim_.variants[variant];
    const std::string key =
        rows.add(label_of(claim_, its, swept) + more, settings_of_study(claim_, its, swept, seed, rate));
    variant_of_.try_emplace(key, its.name);
    return key;
  }

  // The first run of each variant shows whether its runs have what is measured.
  void train_these(const RunRows& rows) {
    const RunWords words{[](const Outcomes&) { return std::string(); },
                         [&](const Outcome& outcome) {
                           const auto loss = outcome.figures.find("validation_loss");
                           return loss == outcome.figures.end() ? "" : "validation loss " + fixed(loss->second, 4);
                         }};
    const auto look = [&](const PooledRun& run, const Outcome& outcome) {
      const std::string& variant = variant_of_.at(run.key);
      if (outcome.kind != Outcome::Kind::failed && looked_.insert(variant).second)
        check_figures(claim_, variant, rows_of(claim_, options_.folder + "/" + run.key, outcome));
    };
    TrainedRows trained = train_rows(rows, options_, words, look);
    studied_.signal = trained.signal;
    for (auto& [key, outcome] : trained.outcomes) {
      if (!studied_.outcomes.contains(key)) studied_.minutes += outcome.seconds / 60;
      studied_.outcomes[key] = std::move(outcome);
    }
  }

  void measure(const std::vector<std::vector<std::string>>& keys) {
    auto& values = studied_.measured.values;
    values.assign(claim_.metrics.size(), {});
    for (auto& each : values) each.resize(claim_.variants.size());
    size_t place = 0;
    for_each_place(claim_, [&](size_t v, size_t s) {
      for (auto& each : values) each[v].emplace_back(claim_.seeds.size());
      for (size_t i = 0; i < claim_.seeds.size(); ++i) measure_run(keys[place][i], v, s, i);
      ++place;
    });
  }
  void measure_run(const std::string& key, size_t v, size_t s, size_t sample) {
    const models::Variant& variant = claim_.variants[v];
    const Outcome& outcome = studied_.outcomes.at(key);
    const auto miss = [&](const std::string& why) {
      studied_.measured.missing.push_back(
          text(label_of(claim_, variant, s), " seed=", claim_.seeds[sample], ": ", why));
    };
    const bool told = outcome.kind == Outcome::Kind::diverged && asks_for_divergence(claim_);
    if (outcome.kind != Outcome::Kind::done && !told) return miss(outcome.why);
    const std::vector<LogRow> rows = rows_of(claim_, options_.folder + "/" + key, outcome);
    for (size_t m = 0; m < claim_.metrics.size(); ++m) {
      if (!claim_.concerns(m, variant.name)) continue;
      try {
        studied_.measured.values[m][v][s][sample] = models::measure(claim_.metrics[m], rows, claim_.swept_number(s));
      } catch (const Error& error) {
        miss(error.what());
      }
    }
  }

  const Claim& claim_;
  const PoolOptions& options_;
  std::map<std::string, std::string> variant_of_;  // of each run's key
  std::set<std::string> looked_;                   // variants
  StudiedRuns studied_;
};

}  // namespace

size_t count_runs(const Claim& claim) {
  const size_t places = claim.variants.size() * claim.swept_values(), rates = claim.learning_rates.size();
  return places * (claim.seeds.size() + (rates > 1 ? rates : 0));
}

StudiedRuns train_claim(const Claim& claim, const PoolOptions& options) { return Study(claim, options).train(); }

models::TrainSettings settings_of_study(const Claim& claim, const models::Variant& variant, size_t swept, int64_t seed,
                                        double rate) {
  Arguments words;
  if (!claim.config.empty()) words.push_back("--config=" + claim.config);
  for (const auto& [key, value] : models::settings_of_run(claim, variant, swept, seed, rate))
    words.push_back("--" + key + "=" + value);
  try {
    return read_train_settings("study", words);
  } catch (const Error& error) {
    fail(claim.path, ": ", label_of(claim, variant, swept), ": ", error.what());
  }
}

std::string label_of(const Claim& claim, const models::Variant& variant, size_t swept) {
  std::string label = variant.name;
  for (const models::SweptKey& key : claim.sweep) label += " " + key.key + "=" + key.values[swept];
  return label;
}

}  // namespace orrery::program
