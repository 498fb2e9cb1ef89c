// Settings of a run from command line arguments and files.
#pragma once

#include "examples/orrery/commands/commands.h"
#include "models/training/settings.h"

namespace orrery::program {

// Returns the defaults of the arguments' (or their file's) model and task, which define the keys.
models::TrainSettings known_train_settings(const std::string& command, const Arguments& arguments);
// Applies files (--config) first, regardless of position, then keys in the order given.
// Errors begin with `command`. on_ranks: a launcher has started the run; then a step has min(8, micro-batches)
// parts, unless gradient_parts is given.
models::TrainSettings read_train_settings(const std::string& command, const Arguments& arguments,
                                          bool on_ranks = false);

}  // namespace orrery::program
