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
  std::string folder;
  int64_t side_by_side = 0;  // 0: as many as there are cores
  bool fresh = false;        // train again what has an outcome
};

struct PoolEvents {
  std::function<void(const PooledRun& run, const models::Outcome& outcome)> ended;  // or was found
  std::function<void(size_t running)> moment;                                       // a few times a second
  std::function<bool()> stop;  // true: the running ones are told to save and end
};

// Every run's outcome that is not there yet; false if it was stopped.  A run that was interrupted goes on from its last
// checkpoint, one that failed begins again, one that another program is training is waited for.
bool train_pool(const std::vector<PooledRun>& runs, const PoolOptions& options, const PoolEvents& events);

// The key of a run of that folder that a program is training now; empty: there is none.
std::string run_in_training(const std::string& folder);

}  // namespace orrery::program
