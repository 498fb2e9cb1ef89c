// Byte-level BPE of GPT-2: Sennrich et al. 2016, arXiv:1508.07909; Radford et al. 2019.
//
// Pre-tokens (models/data/pretokenizer.h) start as one token per byte. While some adjacent pair of
// tokens is in the list of merges, the pair that is listed first becomes one token, at its leftmost
// occurrence. Text of an added token, such as <|endoftext|>, becomes that token before this.
//
// Files have a printable form of tokens, in which each byte is one character (bytes_to_unicode of
// GPT-2): a printable character of Latin-1 is itself, the 68 other bytes are U+0100, U+0101, ...
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/data/pretokenizer.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

struct BytePairVocabulary {  // lists of int32_t hold token ids
  std::string pattern = gpt2_pattern;
  std::vector<std::string> tokens;                           // bytes, by token id; empty: no token has this id
  std::vector<std::pair<std::string, std::string>> merges;   // bytes of two tokens; earlier merges have priority
  std::vector<int32_t> added;                                // matched as text, before pre-tokenization
  std::vector<int32_t> strips_left = {}, strips_right = {};  // added tokens that include adjacent white space
  std::vector<int32_t> printed = {};                         // added tokens that are matched by their printable form
  std::vector<int32_t> normalized = {}, skipped = {};        // as in AddedToken
  std::vector<int32_t> ordinary = {};                        // added tokens that are not special: no marks (is_mark)
  std::vector<std::string> notes = {};                       // as in Tokenizer::notes
  bool ignore_merges = false;  // a pre-token that is a token becomes it, regardless of the merges

  // Calls take(name, token ids) for each kind of added tokens; kinds may overlap.
  template <class Vocabulary, class F>
  static void each_kind(Vocabulary& of, const F& take) {
    take("strips_left", of.strips_left), take("strips_right", of.strips_right);
    take("printed", of.printed), take("normalized", of.normalized), take("skipped", of.skipped);
    take("ordinary", of.ordinary);
  }
};

// Throws Error on a duplicate token or a merge whose parts or result are not tokens; the message
// begins with `what`. `encode` throws Error on a byte without a token.
std::unique_ptr<Tokenizer> make_byte_pairs(BytePairVocabulary vocabulary, std::string_view what);

struct BytePairSettings {  // of the training
  int64_t vocabulary = 8000;

  template <class V>
  void visit(V& v) {
    v("vocabulary", vocabulary, "number of tokens: 256 bytes, merges and <|endoftext|>", between(257, 1e6));
  }
};
// Trains a vocabulary of `vocabulary` tokens on a text: all bytes, merges, and <|endoftext|>, the
// last token. Equal texts give equal vocabularies; a text with too few pairs throws Error.
std::unique_ptr<Tokenizer> train_byte_pairs(const TextChunks& text, int64_t vocabulary,
                                            const TokenizerProgress& progress = {});

// Convert to the printable form and back. A character without a byte throws an Error that begins
// with `what`.
std::string printable_bytes(std::string_view bytes);
std::string bytes_of_printable(std::string_view printed, std::string_view what);
std::string bytes_if_printable(std::string_view text);  // `text` itself if a character has no byte

}  // namespace orrery::models
