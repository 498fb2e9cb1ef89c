// Translation by a trained model: greedy decoding or beam search.
//
// Beam search keeps the `beam` most likely unfinished translations of each source. A translation y
// that ends among them is finished and has the score
//   ln p(y | source) / ((5 + |y|) / 6)^length_penalty                     Wu et al. 2016, arXiv:1609.08144, equation 14
// whose divisor keeps short ones from winning. A source is done when `beam` are finished; the best
// score wins. One beam is greedy decoding. Ties are resolved by row, then by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/data/sentence_pairs.h"
#include "models/translation_model.h"

namespace orrery::models {

constexpr int64_t default_beam = 5;  // default of `orrery translate` and of the BLEU of `orrery evaluate`

struct SearchSettings {
  int64_t beam = 1;
  double length_penalty = 1;
  int64_t max_tokens = 0;   // per translation; 0: twice the source's tokens + 20, at most the context
  int64_t batch_size = 64;  // sources per batch
  std::function<void(double fraction)> progress =
      {};  // called after each batch with the finished fraction of all sources
};

// Translates sources that end with marks.end; returns translations in their order, without marks.
// Caches keys and values; those of a source are computed once. An Error names the number, from 1,
// of a source longer than the context.
std::vector<std::vector<int32_t>> translate(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                            const SentenceMarks& marks, const SearchSettings& settings);
// Returns the translations as text.
std::vector<std::string> translate_to_text(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                           const Tokenizer& tokenizer, const SearchSettings& settings);

}  // namespace orrery::models
