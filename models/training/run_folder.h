// The folder of a run, and who owns it: one run at a time writes there, and of what it finds it touches only what is
// proven to be its own.
//
//   settings.toml  metrics.jsonl        written by the trainer
//   probe.json                          what --probe=yes has found before the first step (probe.h)
//   step_000050/                        a checkpoint (checkpoint.h), complete from the moment it has this name
//   step_000060.partial/                one that is being written or removed, or was when the program was killed
//   step_000040.damaged/                one that --from_previous=yes has set aside
//   replay/                             what --nan_guard=yes has found (replay.h); no checkpoint of the run
//   .orrery.lock                        while a run goes on: the number of its process
//
// A folder counts as a checkpoint if it is named so and holds a file of a checkpoint.  It is removed only if its
// state.json names our format, the folder's step and the files, and if nothing else lies in it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/system/folder_lock.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

bool holds_checkpoints(const std::string& folder);  // sound ones or not

// The newest checkpoint, empty if there is none.  It has been read whole, weights and optimizer (or the weights alone);
// one that is damaged is an Error, which names what is damaged and the newest one before it that is whole.
std::string latest_checkpoint(const std::string& folder, bool weights_alone = false);
// The folder itself if it is a checkpoint, else the latest in it, which need not have an optimizer.  An Error if there
// is none.
std::string checkpoint_at(const std::string& folder);
// Whether a run can be resumed here with --from_previous=yes: the newest checkpoint that is whole has an optimizer.
bool can_resume(const std::string& folder);
// The one of the lowest validation loss among those that were validated when they were written; empty: none.
std::string best_checkpoint(const std::string& folder);

class RunFolder {
 public:
  // Makes the folder and locks it (folder_lock.h) for as long as this object lives.
  explicit RunFolder(const std::string& path, const LockUser& user = {}) : path_(path), lock_(path, user) {}

  // Before a run begins here: an Error if settings.toml or metrics.jsonl, which it replaces, were written by no run
  // (output_file.h).
  void check_free() const;

  // latest_checkpoint.  With from_previous, newer ones that are damaged are set aside under another name.
  std::string checkpoint_to_resume(bool from_previous);

  // Writes `folder`/step_000050 and returns its path.  It is complete or absent, and what was there before stays, also
  // a foreign folder of that name: then the number gets one more 0.  Errors begin with "checkpoint: cannot write".
  std::string write(const CheckpointState& state, nn::Module& model, const nn::Optimizer* optimizer);

  // Finite weights may still predict nothing finite.  A loss that is has shown what was just written to be good; until
  // then it takes no good one's place.  True if there was something to show.
  bool prove();
  // The checkpoint that was resumed was written before the validation that its step owed: it is noted there.
  void record_validation(double loss);
  // The checkpoint that was resumed, until something is proven: it may have been written just before its weights would
  // have shown that they predict nothing finite.  Empty: none.
  const std::string& doubtful() const { return doubtful_; }
  std::string before_doubtful() const;  // the newest whole one that is older; empty: none
  // The newest checkpoint that was resumed or proven; empty: none.
  const std::string& last_good() const { return last_good_; }
  // Renames what was written and not proven; returns the new path, empty if there was nothing or it cannot be renamed.
  std::string set_aside_unproven();

  // Both return sentences about what could not be removed.
  // Removes all but the newest `keep` checkpoints that are whole; 0 keeps all.  The last good and the last written one
  // stay, and with `best` that of the lowest validation loss.
  std::vector<std::string> remove_old(int64_t keep, bool best = false);
  bool is_best(double validation_loss) const;  // lower than that of every checkpoint here
  std::vector<std::string> remove_all();       // checkpoints that are proven to be ours, whole or not
  std::vector<std::string> remove_partial();   // what a killed run has left of what it was writing or removing

 private:
  std::string find_to_resume(bool from_previous);
  bool is_whole(const std::string& checkpoint);

  std::string path_;
  FolderLock lock_;
  std::string last_good_, unproven_, doubtful_;
  std::set<std::string> whole_;  // checkpoints whose files have been compared with their hashes
};

}  // namespace orrery::models
