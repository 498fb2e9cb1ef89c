// Optimizer options of the parameters whose paths match a pattern.
#pragma once

#include "models/training/settings.h"
#include "nn/base/module.h"

namespace orrery::models {

// Applies the settings `lr_scales` and `weight_decay_rules`: lists of PATTERN=VALUE, where * matches
// any characters, ? matches one and [ab] a choice; the last match counts. Throws for a malformed
// list, a negative or non-finite factor, or a pattern without a match.
void apply_parameter_rules(const TrainSettings& settings, nn::Module& model);

}  // namespace orrery::models
