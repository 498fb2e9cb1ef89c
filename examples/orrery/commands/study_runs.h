// A claim's samples: what the pool trains, or what is timed round by round.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/system/folder_lock.h"
#include "examples/orrery/commands/run_rows.h"
#include "models/study/claim.h"
#include "models/study/judged_claim.h"

namespace orrery::program {

struct StudiedRuns {
  models::Measurements measured;                       // of nothing if a signal ended it, or a run failed
  RunRows rows;                                        // of the pool; a timed claim has none
  Outcomes outcomes;                                   // also those that only chose a learning rate
  std::vector<std::pair<std::string, double>> rates;   // of each variant, if learning rates were chosen
  double common_rate = 0;                              // and the one that is best for all of them together
  std::optional<models::Measurements> at_common_rate;  // if that is not every variant's own
  int signal = 0;                                      // that ended it; 0: none
  double minutes = 0;                                  // of the steps of all runs
};

// How many runs the claim has, as far as that is known before learning rates are chosen.
size_t count_runs(const models::Claim& claim);

// Trains what is missing, or measures.  Errors: settings that do not fit each other, before any training; a figure that
// the first run does not have, after it.
// From the first training on `folder`, the study's, stays and is recorded as a user of the runs.
StudiedRuns train_claim(const models::Claim& claim, const PoolOptions& options, const std::string& data,
                        FolderLock& folder);

// Rounds of a timed claim.  `folder`: for the runs, removed at the end; `pool`: nobody may be training there.
StudiedRuns time_claim(const models::Claim& claim, const std::string& folder, const std::string& pool,
                       const std::string& data);

// Of a variant at a swept value, with that seed and learning rate (0: that of the settings).  Sets that do not lie
// where the claim says are looked for in the folder `data`.
models::TrainSettings settings_of_study(const models::Claim& claim, const models::Variant& variant, size_t swept,
                                        int64_t seed, double rate, const std::string& data);
// An Error if two variants have the same settings: their runs would be the same, and no difference could be seen.
void check_variants_differ(const models::Claim& claim, const std::string& data);
// What the claim is judged by beside its file, as StudyVerdict::read says it; only the config where something that its
// runs read is not there.
std::map<std::string, std::set<std::string>> read_by_claim(const models::Claim& claim, const std::string& data);
std::string label_of(const models::Claim& claim, const models::Variant& variant, size_t swept);

}  // namespace orrery::program
