// What a run has left in its folder, for commands that look at runs.
#pragma once

#include <string>

#include "engine/system/files.h"
#include "models/training/settings.h"

namespace orrery::models {

// Whether a folder holds settings.toml or metrics.jsonl of a run, or a checkpoint.
bool is_run(const std::string& folder);
// An Error that begins with `command` unless it does.
void check_is_run(const std::string& command, const std::string& folder);

// An Error if the folder is that of a run, whose files other folders' files must not join, or in a checkpoint:
//   prepare: --out=runs/a is the folder of a run; choose another --out, such as runs/a/prepare
void check_no_run(const std::string& command, const std::string& folder);

TrainSettings settings_in_file(const std::string& path);       // settings.toml, as a run has written it
TrainSettings settings_of_run(const std::string& run_folder);  // without that file those of the last checkpoint

// A sentence if another version of the program than this one has written a run or a checkpoint; empty: it is this one,
// or not known.
std::string version_note(const std::string& run, const std::string& version);

// read(find()), where find names a checkpoint.  A run that goes on meanwhile may remove what is being read: then it has
// written a newer one.
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
