// What is left of a step in which --nan_guard=yes has found a value that is not finite, so that it can be done again:
//
//   RUN/replay/step_000011/    the state before the step, a checkpoint as any other (checkpoint.h)
//   RUN/replay/found.json      which step, or validation, and what was found
//
// A run that is resumed looks for checkpoints in RUN itself, so this one is never taken for its last.
#pragma once

#include <string>

#include "engine/autograd/finite_guard.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

struct Finding {
  int64_t step = 0;         // that was going on, from 1; of a validation the one after which it was
  bool validating = false;  // else it was learning
  LookedAt call;            // call.made[call.found] is not finite
};

// "a value is not finite at step 12: forward of exp in blocks.0.attention: output f32 (2, 8) holds 3 NaN, ..."
std::string sentence(const Finding& finding);

std::string replay_folder(const std::string& run);  // RUN/replay
// The same, or the folder itself if it is one.  An Error if neither holds a finding.
std::string replay_folder_at(const std::string& folder);

// Replaces what an earlier step has left there.
void write_replay(const std::string& folder, const Finding& finding, const CheckpointState& state, nn::Module& model,
                  const nn::Optimizer& optimizer);
// found.json alone, in a folder that is there.
void write_finding(const std::string& folder, const Finding& finding);
// Of the folder of a replay.  Errors begin with the file.
Finding read_finding(const std::string& folder);

}  // namespace orrery::models
