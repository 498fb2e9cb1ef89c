// Sampling from a language model.  top_p: Holtzman et al. 2020, arXiv:1904.09751.
#pragma once

#include <functional>
#include <vector>

#include "models/language_model.h"

namespace orrery::models {

struct SamplingSettings {
  int64_t tokens = 500;      // to add
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  double top_p = 1;          // of those the fewest, from the most likely on, whose probabilities add up to this
  int64_t seed = 1;
  int64_t keep = 0;  // tokens that the model still sees once the context has been full; 0: half of the context
  std::vector<int32_t> never = {};  // numbers that are not drawn, because they are no tokens
  std::vector<int32_t> ends = {};   // a text ends where one of these is drawn, which is no part of it
};

// Continues `prompt` (at least one token); each new token is given to `each` as soon as it is known.
//
// The model reads every token once and remembers its keys and values.  It starts with the last `context` tokens of the
// prompt.  When the context is full, the places of what it remembers cannot move, so it begins anew with the last
// `keep` tokens: it sees between `keep` and `context` tokens, and reads each about context / (context - keep) times.
// With keep = context it always sees as many as it can, and each token costs a pass over the whole context.
std::vector<int32_t> generate(LanguageModel& model, std::vector<int32_t> prompt, const SamplingSettings& settings,
                              const std::function<void(int32_t)>& each = {});

}  // namespace orrery::models
