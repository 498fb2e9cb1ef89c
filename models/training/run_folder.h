// The folder of a run and its lock: one run at a time writes there, and it changes only files that
// are verifiably its own.
//
//   settings.toml  metrics.jsonl        written by the trainer
//   signal_propagation.json             of --signal_propagation=yes, before the first step (signal_propagation.h)
//   step_000050/                        a checkpoint (checkpoint.h), complete from the moment it has this name
//   step_000060.partial/                a checkpoint being written or removed, or left by a killed program
//   step_000040.damaged/                a checkpoint renamed by --resume_from_previous=yes
//   replay/                             result of --nan_guard=yes (replay.h); not a checkpoint of the run
//   .orrery.lock                        process id, while a run is active
//
// A folder with such a name and a checkpoint's file is a checkpoint. It is removed only if its
// state.json has this format, the folder's step and the files, and it holds nothing else.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/system/folder_lock.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

// Returns the checkpoints of a run, intact or damaged, the newest first.
std::vector<std::string> checkpoints_in(const std::string& folder);
bool holds_checkpoints(const std::string& folder);  // intact or damaged
// Returns the step of the newest checkpoint by its name, without reading it; nothing without one.
std::optional<int64_t> last_checkpoint_step(const std::string& folder);

// Returns the newest checkpoint; empty if there is none. Reads all of it (or its weights alone).
// Throws if it is damaged; the error names the damage and the newest intact one before it.
std::string latest_checkpoint(const std::string& folder, bool weights_alone = false);
// Returns `folder` itself if it is a checkpoint, else the latest in it, which may lack the
// optimizer. Throws if there is none.
std::string checkpoint_at(const std::string& folder);
// Returns latest_checkpoint; with `resume_from_previous` the newest intact one.
std::string checkpoint_to_resume(const std::string& folder, bool resume_from_previous);
// Throws if settings.toml or metrics.jsonl, which a new run replaces, were not written by a run
// (output_file.h).
void check_free(const std::string& folder, const LockUser& user = {});
// Throws if a run uses the folder, or if it cannot be created or written. Writes nothing.
void check_usable(const std::string& folder);
// Returns true if --resume_from_previous=yes can resume: the newest intact one has an optimizer.
bool can_resume(const std::string& folder);
// Returns the checkpoint with the lowest validation loss at its own step, among those of the
// newest one's data (CheckpointState::data_since); empty if none has one.
std::string best_checkpoint(const std::string& folder);

class RunFolder {
 public:
  // Makes the folder and locks it (folder_lock.h) for as long as this object lives.
  explicit RunFolder(const std::string& path, const LockUser& user = {}) : path_(path), lock_(path, user) {}

  // checkpoint_to_resume of the folder; newer damaged ones are renamed to .damaged.
  std::string checkpoint_to_resume(bool resume_from_previous);

  // Writes `folder`/step_000050 and returns its path. It is complete or absent. A foreign folder of
  // that name stays: the number gets one more 0. Errors: "checkpoint: cannot write ...".
  std::string write(const CheckpointState& state, nn::Module& model, const nn::Optimizer* optimizer);

  // Marks the last checkpoint as verified, after a finite loss: finite weights can give a
  // non-finite one. Unverified ones replace no verified ones. Returns true if one was pending.
  bool mark_verified();
  // Records the validation of the resumed checkpoint, which was written before its validation.
  void record_validation(double loss);
  // Returns the resumed checkpoint while it is unverified, else empty: it may have been written
  // just before its weights would have given a non-finite loss.
  const std::string& resumed_unverified() const { return resumed_unverified_; }
  std::string previous_checkpoint() const;  // newest intact one before resumed_unverified(); empty: none
  // Returns the newest checkpoint that was resumed or verified; empty if there is none.
  const std::string& last_good() const { return last_good_; }
  // Renames an unverified checkpoint to .damaged; returns the new path, empty if there is none.
  std::string quarantine_unverified();

  // remove_old, remove_all and remove_partial return messages about files left behind.
  // remove_old removes all but the newest `keep` intact checkpoints; 0: removes none. It keeps the
  // last verified and the last written one, and with `best` the checkpoint of the lowest loss.
  std::vector<std::string> remove_old(int64_t keep, bool best = false);
  // Excludes checkpoints up to this step from the lowest validation loss: they are of other data.
  void compare_since(int64_t step) { data_since_ = step; }
  bool is_best(double validation_loss) const;  // lower than that of every checkpoint after compare_since's step
  std::vector<std::string> remove_all();       // verifiably its own, intact or damaged
  std::vector<std::string> remove_partial();   // folders that a killed run was writing or removing

 private:
  bool is_intact(const std::string& checkpoint);

  std::string path_;
  FolderLock lock_;
  std::string last_good_, unverified_, resumed_unverified_;
  int64_t data_since_ = 0;
  std::set<std::string> intact_;  // checkpoints whose files matched their hashes
};

}  // namespace orrery::models
