// Translations by a trained model: the likeliest words one after the other, or the best of several beginnings.
//
// Beam search keeps the `beam` likeliest unfinished translations of each source.  A translation y that ends among the
// likeliest is finished, and has the score
//   ln p(y | source) / ((5 + |y|) / 6)^length_penalty                     Wu et al. 2016, arXiv:1609.08144, equation 14
// without which short ones would win.  A source is done when as many are finished, and the best score wins.  With one
// beam this is the greedy choice.  What is equally likely is taken in the order of rows and tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/data/pairs.h"
#include "models/translation_model.h"

namespace orrery::models {

constexpr int64_t usual_beam = 5;  // of `orrery translate`, and of the BLEU of `orrery evaluate`

struct SearchSettings {
  int64_t beam = 1;
  double length_penalty = 1;
  int64_t most_tokens = 0;  // of a translation; 0: 20 more than twice those of the source, at most the context
  int64_t batch = 64;       // sources at once
  std::function<void(double share)> progress = {};  // told after each batch which share of all sources is done
};

// Of sources that end with marks.end; in their order, without the marks.  Keys and values of what was read and written
// are kept, those of a source are made once.  An Error names the number, from 1, of a source that is longer than the
// context.
std::vector<std::vector<int32_t>> translate(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                            const SentenceMarks& marks, const SearchSettings& settings);
// The same as text.
std::vector<std::string> translate_to_text(TranslationModel& model, std::span<const std::vector<int32_t>> sources,
                                           const Tokenizer& tokenizer, const SearchSettings& settings);

}  // namespace orrery::models
