// The modules of a model by their paths.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/base/module.h"

namespace orrery::models {

// Returns every module in `root`, in the order of visit, without `root` itself.
std::vector<std::pair<std::string, nn::Module*>> modules_of(nn::Module& root);

}  // namespace orrery::models
