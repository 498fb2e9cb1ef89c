// Data that reproduce a step in which --nan_guard=yes has found a value that is not finite:
//
//   RUN/replay/step_000011/    the state before the step, an ordinary checkpoint (checkpoint.h)
//   RUN/replay/found.json      the step or validation, and the value
//
// A resumed run searches RUN itself for checkpoints, so it never takes this one for its last.
#pragma once

#include <string>

#include "engine/autograd/finite_guard.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

struct NonFiniteReport {
  int64_t step = 0;         // step in progress, from 1; for a validation the step before it
  bool validating = false;  // false: in a training step
  OperationRecord call;     // call.outputs[call.first_non_finite] is not finite
};

// "a value is not finite at step 12: forward of exp in blocks.0.attention: output f32 (2, 8) holds 3 NaN, ..."
std::string message(const NonFiniteReport& report);

std::string replay_folder(const std::string& run);  // RUN/replay
bool is_replay(const std::string& folder);          // true if the folder has a report, found.json
// Returns RUN/replay, or `folder` itself if it is a replay; throws if neither has a report.
std::string replay_folder_at(const std::string& folder);

// Writes the checkpoint and the report to `folder`, a RUN/replay, in place of an earlier replay.
void write_replay(const std::string& folder, const NonFiniteReport& report, const CheckpointState& state,
                  nn::Module& model, const nn::Optimizer& optimizer);
// The text of found.json; and what such a text says, whose errors begin with `source`.
std::string text_of(const NonFiniteReport& report);
NonFiniteReport report_in(const std::string& text, const std::string& source);
// Writes found.json alone, into an existing folder.
void write_report(const std::string& folder, const NonFiniteReport& report);
// Reads a replay's folder. Errors begin with the file.
NonFiniteReport read_report(const std::string& folder);

}  // namespace orrery::models
