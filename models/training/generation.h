// Sampling from a language model.
#pragma once

#include <functional>
#include <vector>

#include "models/gpt.h"

namespace orrery::models {

struct SamplingSettings {
  int64_t tokens = 500;      // to add
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  int64_t seed = 1;
};

// Continues `prompt` (at least one token); each new token is given to `each` as soon as it is known.  The model sees
// the last `context` tokens.
std::vector<int32_t> generate(Gpt& model, std::vector<int32_t> prompt, const SamplingSettings& settings,
                              const std::function<void(int32_t)>& each = {});

}  // namespace orrery::models
