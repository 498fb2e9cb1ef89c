// A run, possibly still in progress, as read from its folder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/study/run_log.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

struct ReportedRun {
  std::string folder, name;  // as given; its last component
  RunLog log;
  int64_t logged = 0;                     // last step of the log
  std::optional<TrainSettings> settings;  // resolved: of the newest checkpoint, else of settings.toml
  std::optional<CheckpointState> state;   // state of the newest checkpoint
  std::string newest, best;               // checkpoints, by path; empty: none
  std::vector<std::string> notes;         // messages about files that cannot be read
  std::string version_note;               // newest checkpoint's note, see run_contents.h

  // Returns the step at which allow_new_text last changed the data; earlier losses are of old data.
  int64_t data_since() const { return state ? state->data_since : 0; }
  int64_t last_step() const;                          // maximum over the log and the newest checkpoint
  std::string setting(const std::string& key) const;  // empty: it has none, or settings are unknown
};

// Skips missing files; damaged ones become notes. Throws only if the log is damaged.
ReportedRun read_reported_run(const std::string& folder);
// Calls runs of equal names by their folders.
void distinguish_names(std::vector<ReportedRun>& runs);

}  // namespace orrery::models
