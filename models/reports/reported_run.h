// A run as far as it has been written: what its folder says of it, now.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/study/run_log.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

struct ReportedRun {
  std::string folder, name;  // as it was given; the last part of that
  RunLog log;
  int64_t logged = 0;  // the last step that the log has
  std::optional<TrainSettings> settings;  // resolved: of the newest checkpoint, else of settings.toml
  std::optional<CheckpointState> state;   // of the newest checkpoint
  std::string newest, best;               // checkpoints, by path; empty: none
  std::vector<std::string> notes;         // sentences about what cannot be read
  std::string version_note;               // as run_files.h has it, of the newest checkpoint

  int64_t last_step() const;                          // that the log or the newest checkpoint knows of
  std::string setting(const std::string& key) const;  // empty: it has none, or they are not known
};

// What is missing is left out, what is damaged becomes a note; only a log that is damaged is an Error.
ReportedRun read_reported_run(const std::string& folder);

}  // namespace orrery::models
