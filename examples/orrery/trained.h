// What a run has left, as the commands that use it read it.
#pragma once

#include <memory>
#include <string>

#include "models/data/tokenizer.h"
#include "nn/base/module.h"

namespace orrery::program {

struct Trained {
  std::unique_ptr<models::Tokenizer> tokenizer;
  std::unique_ptr<nn::Module> model;
};

// The newest checkpoint of a run's folder, or the checkpoint whose folder it is; errors begin with the command.
Trained read_trained(const std::string& command, const std::string& folder);

}  // namespace orrery::program
