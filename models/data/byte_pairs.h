// Byte-level BPE of GPT-2: Sennrich et al. 2016, arXiv:1508.07909; Radford et al. 2019.
//
// Pre-tokens (models/data/pretokenizer.h) start as one token per byte. While adjacent tokens are in
// the list of merges, the leftmost two of the first listed pair become one token.
//
// In files a byte is a printable character: a printable one of Latin-1 is itself, the 68 others are
// U+0100, U+0101, ... Text of an added token, such as <|endoftext|>, becomes that token.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/data/pretokenizer.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

struct BytePairVocabulary {
  std::string pattern = gpt2_pattern;
  std::vector<std::string> tokens;                           // their bytes; empty: no token has that number
  std::vector<std::pair<std::string, std::string>> merges;   // bytes of two tokens; earlier merges have priority
  std::vector<int32_t> added;                                // tokens that are matched as text, before pre-tokenization
  std::vector<int32_t> strips_left = {}, strips_right = {};  // added tokens that include adjacent white space
  std::vector<int32_t> printed = {};  // added tokens that are matched in the text in the printable form of files
  std::vector<int32_t> normalized = {}, skipped = {};  // as in AddedToken
  std::vector<int32_t> ordinary = {};                  // added tokens that are not special: text like any other
  std::vector<std::string> notes = {};                 // as in Tokenizer::notes
  bool ignore_merges = false;  // a pre-token that is a token becomes it, regardless of the merges

  // Calls `take` for each kind of added tokens; kinds may overlap.
  template <class Vocabulary, class F>
  static void each_kind(Vocabulary& of, const F& take) {
    take("strips_left", of.strips_left), take("strips_right", of.strips_right);
    take("printed", of.printed), take("normalized", of.normalized), take("skipped", of.skipped);
    take("ordinary", of.ordinary);
  }
};

// Throws Error, beginning with `what`, on a duplicate token or a merge without its tokens. `encode`
// throws Error on a byte without a token.
std::unique_ptr<Tokenizer> make_byte_pairs(BytePairVocabulary vocabulary, std::string_view what);

// A vocabulary trained on a text: all bytes, merges, and <|endoftext|>, the last token. Equal texts
// give equal vocabularies; a text with too few pairs throws Error.
struct BytePairSettings {
  int64_t vocabulary = 8000;

  template <class V>
  void visit(V& v) {
    v("vocabulary", vocabulary, "number of tokens: 256 bytes, merges and <|endoftext|>", between(257, 1e6));
  }
};
std::unique_ptr<Tokenizer> train_byte_pairs(const TextChunks& text, int64_t vocabulary,
                                            const TokenizerProgress& progress = {});

// Converts to the printable form and back; Errors begin with `what`: a character without a byte.
std::string printable_bytes(std::string_view bytes);
std::string bytes_of_printable(std::string_view printed, std::string_view what);
std::string bytes_if_printable(std::string_view text);  // `text` itself if a character has no byte

}  // namespace orrery::models
