// Returns the GPT settings of a run, for tests that train a GPT.
#pragma once

#include "models/architectures/gpt.h"
#include "models/training/settings.h"

namespace orrery::testing {

inline models::GptSettings& gpt_settings(const models::TrainSettings& run) {
  return run.model_settings.as<models::GptSettings>();
}

}  // namespace orrery::testing
