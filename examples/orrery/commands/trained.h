// A trained model, as a checkpoint describes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/training/settings.h"

namespace orrery::program {

struct Trained {
  models::TrainSettings settings;
  std::string tokenizer;  // as Task::tokenizer says it; of a language model without one, numbers
  std::unique_ptr<nn::Module> model;
  std::string version;  // of the program that wrote the checkpoint; empty: not known
};

// Of the folder of a checkpoint, or the newest one of the folder of a run.  Errors begin with the command's name.
Trained read_trained(const std::string& command, const std::string& folder);

void warn(const std::vector<std::string>& sentences);  // a line each, on the standard error

// A line on the standard output if another version of the program has written that run.
void warn_of_version(const std::string& run, const std::string& version);

}  // namespace orrery::program
