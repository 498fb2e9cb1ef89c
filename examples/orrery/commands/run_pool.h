// Trains runs by run id (models/study/runs.h), several in parallel, each in its own process, so
// that a failed run does not affect others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/study/runs.h"

namespace orrery::program {

struct PooledRun {
  std::string id;
  models::TrainSettings settings;
};

struct PoolOptions {
  std::string command;  // prefix of messages
  std::string folder;
  int64_t parallel = 0;  // number of parallel runs; 0: number of cores
  bool retrain = false;  // repeat runs that have an outcome
  // Throws if files of a done or diverged run in this folder are unreadable or do not fit its
  // outcome; the run is then repeated.
  std::function<void(const std::string& folder, const models::Outcome& outcome)> check_files = {};
};

struct PoolEvents {
  std::function<void(const PooledRun& run, const models::Outcome& outcome)> ended;  // or was found
  std::function<void(const std::string& message)> warning;
  std::function<void(size_t running)> tick;  // called a few times per second
  std::function<bool()> stop;                // true: running ones save and end
};

// Trains all runs without an outcome; returns false if stopped. An interrupted run resumes from
// its newest intact checkpoint, or restarts. Failed runs and runs with a damaged outcome are
// repeated. Waits for runs that another program trains. After an error, or if this process ends,
// running ones save and end.
bool train_pool(const std::vector<PooledRun>& runs, const PoolOptions& options, const PoolEvents& events);

// Returns the id of a run in the folder that is in training, or "". Errors begin with "study".
std::string run_in_training(const std::string& folder);

}  // namespace orrery::program
