// What a run must have in common with the one that it goes on with.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

// An Error that names what differs, and the way out: a setting that a resumed run may not change (today's settings and
// defaults must still describe the run), or the content of its data unless now.other_text.
void check_same_run(const TrainSettings& now, const CheckpointState& before, const Task& task);

// The same Error if the run has a model of another class, or another task.
void check_same_kind(const std::string& run, const std::string& model, const std::string& task,
                     const TrainSettings& its);

// What a checkpoint says of what was read, with the plug-ins that are loaded; and the files of those that were others
// when the checkpoint was written.
std::map<std::string, Fingerprint> with_loaded_plugins(std::map<std::string, Fingerprint> beside);
std::vector<std::string> changed_plugins(const CheckpointState& before);

// Whether the value of --resume is a run's folder, and not yes or no.
bool names_a_run(std::string_view value);
// The command that goes on with the run in this folder, as a shell takes it: "orrery train --resume=runs/mine".
std::string command_to_resume(const std::string& run, const std::vector<std::string>& more = {});

}  // namespace orrery::models
