// Checks that a resumed run agrees with its checkpoint.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/checkpoint.h"

namespace orrery::models {

// Throws if a setting that may not change differs (today's settings and defaults must still
// describe the run), or the data without now.allow_new_text. The error names a way out.
void check_same_run(const TrainSettings& now, const CheckpointState& before, const Task& task);

// Returns true if the data, or how they are read and split, are others than the checkpoint's:
// validation losses before and after it cannot be compared. Call after check_same_run.
bool has_new_data(const TrainSettings& now, const CheckpointState& before, const Task& task);

// Returns the training data of the checkpoint's weights: of its run, which come first, then those
// before allow_new_text, and those of the runs in init_from.
std::vector<TrainingData> training_data(const CheckpointState& state);
// Returns the training data as that of init_from, for a run that begins with these weights; each is
// in the result once.
std::vector<TrainingData> as_of_init_from(std::vector<TrainingData> all);

// Throws Error if the run has a model of another class, or another task.
void check_same_kind(const std::string& run, const std::string& model, const std::string& task,
                     const TrainSettings& its);

// Return the recorded fingerprints plus those of the loaded plug-ins, and the loaded plug-in files
// that differ from those recorded in the checkpoint.
std::map<std::string, Fingerprint> with_loaded_plugins(std::map<std::string, Fingerprint> extra_inputs);
std::vector<std::string> changed_plugins(const CheckpointState& before);

// Returns true if the value of --resume is a run's folder, not yes or no.
bool is_run_path(std::string_view value);
// Returns the arguments that use a run's model, as its task defines: generate, translate or
// classify. Other tasks have none.
std::vector<std::string> words_to_use(const std::string& task, const std::string& run);
// Returns the shell command that resumes the run: "orrery train --resume=runs/mine".
std::string resume_command(const std::string& run, const std::vector<std::string>& more = {});

}  // namespace orrery::models
