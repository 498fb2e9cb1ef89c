// SentencePiece models as protobuf messages: checks of data that the library trusts, and a model
// made of pieces from another source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

struct SentencePieceEntry {
  enum class Kind {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
  };  // numbered as in sentencepiece_model.proto
  std::string piece;
  float score;
  Kind kind;
};

// The pieces of a model, and properties that decide where texts can be split.
struct SentencePieceInfo {
  std::string rules = "";    // of normalization, in the library's format; empty: none
  bool sums_scores = true;   // unigram: pieces maximize the sum of scores; else pairs are merged
  bool finds_words = false;  // a piece is a word with its space
  bool one_in_front = true;  // a text gets a space before it, or after it if spaces end pieces
  // Spaces: consecutive ones merge into one; they become U+2581; they end pieces, not begin them.
  bool in_a_row_are_one = true, are_escaped = true, end_pieces = false;
  bool byte_fallback = false;  // unknown characters become bytes; else consecutive ones are one token
  std::vector<SentencePieceEntry> entries = {};  // by token
};
// Reads a .model, a protobuf message. Its normalization rules are a trie whose leaves point to
// texts; the library follows these numbers without a check. Throws Error if a number points outside
// or the protobuf message is malformed; errors begin with `what`.
SentencePieceInfo sentence_piece_info(std::string_view model, std::string_view what);

// A token of an encoded text and the offset after it, where the next token begins.
struct SentencePieceToken {
  int32_t number = 0;
  size_t end = 0;
};
// Reads the library's message SentencePieceText.
std::vector<SentencePieceToken> sentence_piece_tokens(std::string_view message, std::string_view what);

// Returns the model with or without a space before texts.
std::string with_space_in_front(std::string model, bool space);

// Returns a model that merges pairs, the highest score first. It adds a space before a text and
// normalizes nothing else. Unknown characters become bytes if there are pieces for bytes. Tokens 0,
// 1 and 2 are unknown, begin and end.
std::string sentence_piece_model(const std::vector<SentencePieceEntry>& pieces);

}  // namespace orrery::models
