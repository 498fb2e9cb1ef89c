// What a run must have in common with the one that it goes on with.
#pragma once

#include "models/tasks/base/task.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

// An Error that names what differs, and the way out: a setting that a resumed run may not change (today's settings and
// defaults must still describe the run), or the content of its data unless now.other_text.
void check_same_run(const TrainSettings& now, const CheckpointState& before, const Task& task);

}  // namespace orrery::models
