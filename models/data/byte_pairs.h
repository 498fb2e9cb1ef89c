// Byte-level byte-pair encoding, as GPT-2 has it.  Sennrich et al. 2016, arXiv:1508.07909; Radford et al. 2019.
//
// A text is cut into pieces (models/data/pieces.h).  A piece begins as its bytes, a token each; then, as long as two
// neighbours are among the merges, those that come first in the list, the leftmost of them, become one token.
//
// Files write a byte as a printable character: those of Latin-1 that print stand for themselves, the 68 others for
// U+0100, U+0101, ...  Text that is one of the added tokens, such as <|endoftext|>, is that token.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/data/pieces.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

struct BytePairVocabulary {
  std::string pattern = gpt2_pattern;
  std::vector<std::string> tokens;                           // their bytes; empty: no token has that number
  std::vector<std::pair<std::string, std::string>> merges;   // the bytes of two tokens, the first pair first
  std::vector<int32_t> added;                                // tokens that stand for themselves, before any cutting
  std::vector<int32_t> strips_left = {}, strips_right = {};  // those of them of which white space around is a part
  std::vector<int32_t> printed = {};  // those that are found where their bytes stand as files write them
  std::vector<int32_t> normalized = {}, skipped = {};  // as AddedToken has it
  std::vector<std::string> notes = {};                 // as Tokenizer::notes has them
  bool whole_pieces = false;  // a piece that is a token is that one, whatever the merges would make of it

  // The kinds of added tokens, which overlap.
  template <class Vocabulary, class F>
  static void each_kind(Vocabulary& of, const F& take) {
    take("strips_left", of.strips_left), take("strips_right", of.strips_right);
    take("printed", of.printed), take("normalized", of.normalized), take("skipped", of.skipped);
  }
};

// Errors begin with `what`: a token twice, a merge of what are no tokens.  A text with a byte that no token has is an
// Error where it is encoded.
std::unique_ptr<Tokenizer> make_byte_pairs(BytePairVocabulary vocabulary, std::string_view what);

// A vocabulary learned from this text: all bytes, so many merges, and <|endoftext|>, the last token.  The same for the
// same text.  An Error if the text has fewer pairs.
struct BytePairSettings {
  int64_t vocabulary = 8000;

  template <class V>
  void visit(V& v) {
    v("vocabulary", vocabulary, "tokens: 256 bytes, merges, and <|endoftext|>", between(257, 1e6));
  }
};
std::unique_ptr<Tokenizer> learn_byte_pairs(const TextPieces& text, int64_t vocabulary,
                                            const LearningProgress& progress = {});

// Bytes as files write them, and back; an Error that begins with `what` if a character stands for no byte.
std::string printable_bytes(std::string_view bytes);
std::string bytes_of_printable(std::string_view printed, std::string_view what);
std::string bytes_if_printable(std::string_view text);  // itself, if a character stands for no byte

}  // namespace orrery::models
