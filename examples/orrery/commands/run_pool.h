// Trains runs that are known by their keys (models/study/runs.h), several side by side, each in a process of its own,
// so that one that fails takes no other with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/study/runs.h"

namespace orrery::program {

struct PooledRun {
  std::string key;
  models::TrainSettings settings;
};

struct PoolOptions {
  std::string command;  // the first word of messages
  std::string folder;
  int64_t side_by_side = 0;  // 0: as many as there are cores
  bool fresh = false;        // train again what has an outcome
  // Throws an Error if files of a run that is done or diverged, in this folder, cannot be read or do not fit its
  // outcome: it is trained again.
  std::function<void(const std::string& folder, const models::Outcome& outcome)> check_files = {};
};

struct PoolEvents {
  std::function<void(const PooledRun& run, const models::Outcome& outcome)> ended;  // or was found
  std::function<void(const std::string& sentence)> warning;
  std::function<void(size_t running)> moment;  // a few times a second
  std::function<bool()> stop;                  // true: the running ones save and end
};

// Trains every run that has no outcome yet; false if it was stopped. A run that was interrupted is resumed from its
// newest checkpoint that is whole, and begins again without one. A run that failed is tried again. A run whose outcome
// is damaged is trained again. A run that another program trains is waited for. After an error, and if this process
// ends, running ones save and end.
bool train_pool(const std::vector<PooledRun>& runs, const PoolOptions& options, const PoolEvents& events);

// The key of a run of that folder that a program is training now; empty: there is none. Errors begin with "study".
std::string run_in_training(const std::string& folder);

}  // namespace orrery::program
