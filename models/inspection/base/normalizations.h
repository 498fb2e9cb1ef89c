// Which of a model's modules are normalizations.
#pragma once

#include <string>
#include <vector>

#include "nn/base/module.h"

namespace orrery::models {

struct NormalizationFound {
  std::string path, kind;  // "blocks.0.attention_norm", "layer"
  nn::Module* module;
};
// Those that the family normalization makes, a plug-in's too, but for none, in the order of visit.
std::vector<NormalizationFound> normalizations_of(nn::Module& model);

}  // namespace orrery::models
