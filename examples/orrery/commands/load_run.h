// A trained model, loaded from a checkpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/tasks/base/task.h"
#include "models/training/settings.h"

namespace orrery::program {

struct LoadedRun {
  models::TrainSettings settings;
  std::string tokenizer;  // see Task::tokenizer; "token_ids" for a language model without one
  std::unique_ptr<nn::Module> model;
  std::string version;                                // of the program that wrote the checkpoint; empty: unknown
  std::vector<models::TrainingData> trained_on = {};  // data that the weights were trained on
  int64_t step = 0;                                   // of the checkpoint
  Fingerprint held_out = {};                          // of the data that the run validated on, or took a part of
};

// Returns the run that a command is given: --checkpoint=RUN, else words[0], which it removes.
std::string take_run(const std::string& checkpoint, std::vector<std::string>& words);

// Loads a checkpoint, or the newest one of a run. Errors begin with the command's name.
LoadedRun load_run(const std::string& command, const std::string& folder);

// Returns the options with which the run's task evaluates the model, without BLEU.
models::TaskOptions evaluation_options(const LoadedRun& trained);

// Prints a warning if the task, made of the run's own settings, has read other held-out data than the run.
void warn_about_data(const LoadedRun& trained, const models::Task& task);

// Prints a warning if another version of the program wrote that run.
void warn_about_version(const std::string& run, const std::string& version);

}  // namespace orrery::program
