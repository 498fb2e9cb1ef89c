// A trained model, as a checkpoint describes it.
#pragma once

#include <memory>
#include <string>

#include "models/training/settings.h"

namespace orrery::program {

struct Trained {
  models::TrainSettings settings;
  std::string tokenizer;  // as Task::tokenizer says it
  std::unique_ptr<nn::Module> model;
};

// Of the folder of a checkpoint, or the newest one of the folder of a run.  Errors begin with the command's name.
Trained read_trained(const std::string& command, const std::string& folder);

}  // namespace orrery::program
