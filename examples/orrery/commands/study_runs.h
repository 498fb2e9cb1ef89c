// Samples of a claim: runs that the pool trains, or timed rounds.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/system/folder_lock.h"
#include "examples/orrery/commands/run_table.h"
#include "models/study/claim.h"
#include "models/study/claim_result.h"

namespace orrery::program {

constexpr const char* diverged = "diverged";  // a metric that no log contains
bool names_divergence(const std::string& pattern);  // true if the pattern matches `diverged`

struct StudyRuns {
  models::Measurements measured;                               // empty if a signal stopped it or a run failed
  RunRows rows;                                                // the pool's runs; none for a timed claim
  Outcomes outcomes;                                           // includes runs that only chose a learning rate
  std::vector<std::pair<std::string, double>> learning_rates;  // learning rate per variant, if chosen
  double shared_lr = 0;                                        // the best shared learning rate
  std::optional<models::Measurements> at_shared_lr;            // unless it is every variant's own
  int signal = 0;                                              // signal that stopped it; 0: none
  double minutes = 0;                                          // time of all runs' steps
};

// Returns the number of runs, as far as it is known before learning rates are chosen.
size_t count_runs(const models::Claim& claim);

// Trains missing runs, or measures. Throws before training if settings conflict, and after the
// first run if it lacks a metric. From the first training on, `folder`, the study's, is kept and
// recorded as a user of the runs.
StudyRuns train_claim(const models::Claim& claim, const PoolOptions& options, const std::string& data,
                      FolderLock& folder);

// Measures rounds of a timed claim. `folder`: its runs, removed at the end; `pool`: must be idle.
StudyRuns time_claim(const models::Claim& claim, const std::string& folder, const std::string& pool,
                     const std::string& data);

// Returns the settings of a variant at a swept value (`lr` 0: the learning rate of the settings).
// Searches the folder `data` for data sets that are missing at the claim's paths.
models::TrainSettings settings_of_study(const models::Claim& claim, const models::Variant& variant, size_t swept,
                                        int64_t seed, double lr, const std::string& data);
// Throws if two variants or two swept values have equal settings: their runs would be the same.
void check_variants_differ(const models::Claim& claim, const std::string& data);
// Returns sentences about metrics that have another meaning in some of the compared runs. Throws if
// two variants are compared by a loss itself, or by a function of it alone: the verdict would be
// about different targets. A difference or ratio of two logged metrics of a run is allowed.
std::vector<std::string> notes_of_meaning(const models::Claim& claim, const std::string& data);
// Returns inputs of the claim besides its file, in StudyVerdict::read's format; only the config if
// an input of its runs is missing.
std::map<std::string, std::set<std::string>> claim_inputs(const models::Claim& claim, const std::string& data);
std::string label_of(const models::Claim& claim, const models::Variant& variant, size_t swept);

}  // namespace orrery::program
