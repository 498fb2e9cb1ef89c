// Contents of a run's folder, for commands that inspect runs.
#pragma once

#include <string>

#include "engine/system/files.h"
#include "models/training/loss_settings.h"
#include "models/training/settings.h"

namespace orrery::models {

// Returns true if the folder has a run's settings.toml or metrics.jsonl, or a checkpoint.
bool is_run(const std::string& folder);
// Throws an error that begins with `command` unless is_run(folder).
void check_is_run(const std::string& command, const std::string& folder);

// Throws if the folder is a run's, whose files must not mix with others, or is in a checkpoint:
//   prepare: --out=runs/a is the folder of a run; choose another --out, such as runs/a/prepare
void check_no_run(const std::string& command, const std::string& folder);

TrainSettings settings_in_file(const std::string& path);       // settings.toml, as a run wrote it
TrainSettings settings_of_run(const std::string& run_folder);  // without that file, the last checkpoint's

// Returns settings_of_run with the fingerprints of the newest checkpoint, if there is one.
LossMeaning loss_meaning_of_run(const std::string& run_folder);

// Returns a sentence if another version of the program wrote the run or checkpoint. Empty: this
// version, or unknown.
std::string version_note(const std::string& run, const std::string& version);

// Returns read(find()), where find returns a checkpoint's path. Retries if an active run removed
// that checkpoint during the read, because the run has then written a newer one.
template <class Find, class Read>
auto read_newest(const Find& find, const Read& read) {
  for (int attempt = 1;; ++attempt) {
    const std::string checkpoint = find();
    try {
      return read(checkpoint);
    } catch (const Error&) {
      if (attempt == 10 || folder_exists(checkpoint)) throw;
    }
  }
}

}  // namespace orrery::models
