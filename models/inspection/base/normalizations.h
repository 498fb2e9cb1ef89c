// Finds the normalizations of a model.
#pragma once

#include <string>
#include <vector>

#include "nn/base/module.h"

namespace orrery::models {

struct NormalizationModule {
  std::string path, kind;  // "blocks.0.attention_norm", "layer"
  nn::Module* module;
};
// Returns the modules of all registered normalizations, also of plug-ins, except none, as visited.
std::vector<NormalizationModule> normalizations_of(nn::Module& model);

}  // namespace orrery::models
