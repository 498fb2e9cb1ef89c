// Checks that a resumed run agrees with its checkpoint.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

// Throws if a setting that may not change differs from the checkpoint's, or if the data differ and
// now.allow_new_text is not set. A default that changed since then is a difference too. The error
// names a way out.
void check_same_run(const TrainSettings& now, const CheckpointState& before, const Task& task);

// Returns true if the data, or how they are read and split, differ from the checkpoint's:
// validation losses before and after it cannot be compared. Call after check_same_run.
bool has_new_data(const TrainSettings& now, const CheckpointState& before, const Task& task);

// Returns all data that the checkpoint's weights were trained on: first the run's own, then data
// that allow_new_text replaced and the training data of the weights from init_from.
std::vector<TrainingData> training_data(const CheckpointState& state);
// Returns the fingerprint of the data that the run validated on, or held out a part of; without a hash if unknown.
Fingerprint held_out_data(const CheckpointState& state);
// Marks all entries as training data of init_from, for a run that starts from these weights, and
// merges equal entries.
std::vector<TrainingData> as_of_init_from(std::vector<TrainingData> all);

// Throws Error if the run has a model of another class, or another task.
void check_same_kind(const std::string& run, const std::string& model, const std::string& task,
                     const TrainSettings& settings);

// Returns `extra_inputs` and the fingerprints of the loaded plug-ins.
std::map<std::string, Fingerprint> with_loaded_plugins(std::map<std::string, Fingerprint> extra_inputs);
// Returns the loaded plug-in files that differ from the plug-ins recorded in the checkpoint.
std::vector<std::string> changed_plugins(const CheckpointState& before);

// Returns true if the value of --resume is a run's folder, not yes or no.
bool is_run_path(std::string_view value);
// Returns the arguments of the command that applies a run's model: generate, translate or classify,
// depending on the task; none for other tasks.
std::vector<std::string> command_to_use(const std::string& task, const std::string& run);
// Returns the shell command that resumes the run: "orrery train --resume=runs/mine".
std::string resume_command(const std::string& run, const std::vector<std::string>& more = {});

}  // namespace orrery::models
