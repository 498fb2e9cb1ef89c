// The settings of a run from words on the command line and files of settings.
#pragma once

#include "examples/orrery/commands/commands.h"
#include "models/training/settings.h"

namespace orrery::program {

// The defaults of the model and the task that the words, or a file of theirs, name: they decide what keys there are.
models::TrainSettings known_train_settings(const std::string& command, const Arguments& arguments);
// Files first (--config), whatever their place among the words; then the keys in the order given.  Errors begin with
// `command`.
models::TrainSettings read_train_settings(const std::string& command, const Arguments& arguments);

}  // namespace orrery::program
