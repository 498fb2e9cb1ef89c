// The runs below a folder, with their properties, without loading a model, for `orrery runs`.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/training/settings.h"

namespace orrery::models {

enum class RunState {
  complete,
  running,     // a program holds the lock of its folder
  stopped,     // unfinished, with a checkpoint of its last step
  failed,      // unfinished, without one: an error or a kill ended it
  imported,    // weights of another program, not trained here
  unreadable,  // see ListedRun::error
};
std::string name(RunState state);

struct ListedRun {
  std::string folder;
  RunState state = RunState::unreadable;
  std::string error = {};  // why its settings or its log cannot be read; else empty
  std::optional<TrainSettings> settings = {};
  int64_t step = 0;                               // last step of the log, or of the checkpoints if there is no log
  double validation_loss = NAN, best_loss = NAN;  // the last and the lowest validation loss; NaN: none
  double age = 0;                                 // seconds since the last change of the log
};
struct ListedPool {  // of sweeps and studies
  std::string folder;
  int64_t runs = 0;
  uint64_t bytes = 0;
};
struct RunList {
  std::vector<ListedRun> runs;  // the latest change first
  std::vector<ListedPool> pools;
};

// A log above this size is read only in its last bytes; best_loss is then that of these.
constexpr uint64_t max_log_bytes = uint64_t{8} << 20;

// Lists the folder itself, if it is a run or a pool, else what is in it and its subfolders. Skips
// hidden folders, and those in a run or pool. A run that cannot be read does not end the list.
RunList runs_below(const std::string& folder);

}  // namespace orrery::models
