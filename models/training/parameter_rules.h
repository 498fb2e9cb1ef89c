// What optimizers do with parameters whose paths fit a pattern.
#pragma once

#include "models/training/settings.h"
#include "nn/base/module.h"

namespace orrery::models {

// The settings `rate_factors` and `decays`: a list of PATTERN=VALUE, where * stands for any characters, ? for one and
// [ab] for a choice; the last that fits a parameter's path counts.  Errors: what is no such list, a factor that is
// negative or not finite, a pattern that fits nothing.
void apply_rules(const TrainSettings& settings, nn::Module& model);

}  // namespace orrery::models
