// Sampling from a language model. top_p: Holtzman et al. 2020, arXiv:1904.09751.
#pragma once

#include <functional>
#include <vector>

#include "models/language_model.h"

namespace orrery::models {

struct SamplingSettings {
  int64_t tokens = 500;      // number of new tokens
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // only the k most likely tokens; 0: all
  double top_p = 1;          // then only the fewest most likely tokens whose probabilities add up to this
  int64_t seed = 1;
  int64_t keep = 0;                 // tokens of context that remain when the context is full; 0: half of the context
  std::vector<int32_t> never = {};  // token ids that are never sampled, because they decode to no token
  std::vector<int32_t> ends = {};   // token ids that end the text and are not part of it
};

// Continues `prompt` (at least one token); passes each new token to `each` immediately.
//
// A KV cache holds the keys and values of every token, from the last `context` tokens of the prompt
// on. Cached positions cannot move, so when the context is full, the cache restarts from the last
// `keep` tokens. The model then attends to `keep` to `context` tokens and processes each about
// context / (context - keep) times. With keep = context each token costs a full pass. Fewer
// tokens than the prefix, which attend to each other, are read again with each new one.
std::vector<int32_t> generate(LanguageModel& model, std::vector<int32_t> prompt, const SamplingSettings& settings,
                              const std::function<void(int32_t)>& each = {});

}  // namespace orrery::models
