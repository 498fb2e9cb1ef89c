// SentencePiece splits a text into trained pieces, spaces included: by merging pairs (Sennrich et
// al. 2016, arXiv:1508.07909) or by a unigram model (Kudo 2018, arXiv:1804.10959). libsentencepiece
// does both; this is the part that orrery uses. Kudo and Richardson 2018, arXiv:1808.06226.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/settings/config.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

struct SentencePieceSettings {
  int64_t vocabulary = 8000;
  std::string kind = "bpe";
  double coverage = 0.9995;
  bool byte_fallback = false;
  int64_t max_bytes = 100'000'000;

  template <class V>
  void visit(V& v) {
    v("vocabulary", vocabulary, "number of pieces, including those for unknown text, begin and end", between(4, 1e6));
    v("kind", kind, "how pieces are trained; bpe: merging pairs, unigram: dropping pieces", one_of({"bpe", "unigram"}));
    v("coverage", coverage, "fraction of the text's characters that have a piece; the others are unknown",
      between(0.98, 1));  // the library's limits
    v("byte_fallback", byte_fallback, "encode an unknown character as its bytes");
    v("max_bytes|most_bytes", max_bytes, "bytes of text for training, all in memory; a longer text: every k-th line",
      between(1000, 2e9));
  }
};

// Trains a vocabulary on the lines of a text; equal texts give equal vocabularies. Throws Error if
// the text is empty or too short for the vocabulary.
std::unique_ptr<Tokenizer> train_sentence_piece(std::string_view text, const SentencePieceSettings& settings);
std::string train_sentence_piece_model(std::string_view text, const SentencePieceSettings& settings);  // as a .model
// Removes the location from "Internal: src/trainer_interface.cc(590) [...] Vocabulary ...".
std::string sentence_piece_reason(std::string words);

}  // namespace orrery::models
