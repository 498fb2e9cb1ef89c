// Training with settings as text.
#pragma once

#include "engine/settings/config.h"
#include "models/training/trainer.h"

namespace orrery::testing {

// Returns the settings with others, which override equal ones.
inline Assignments with(Assignments all, const Assignments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
inline models::TrainingResult train(const Assignments& settings) {
  return models::Trainer(models::make_settings(settings)).run();
}

}  // namespace orrery::testing
