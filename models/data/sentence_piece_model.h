// SentencePiece's models as messages of protobuf: what the library takes on trust in one, looked at before it does, and
// one made of pieces that came another way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

// A .model is a message of protobuf.  Its rules of normalization are a trie and the texts that its leaves point to, in
// which the library goes wherever a number leads.  An Error that begins with `what` if one leads outside, or if the
// message has no form.
void check_sentence_piece_model(std::string_view model, std::string_view what);

// What a model says of texts, as far as it decides where they can be divided.
struct SentencePieceFacts {
  std::string rules = "";    // of normalization, in the library's own form; empty: none
  bool sums_scores = true;   // a text's pieces are those with the largest sum (unigram), not what pairs merge into
  bool finds_words = false;  // a piece is a word with its space
  bool one_in_front = true;  // a text gets a space in front, or behind where spaces end pieces
  bool in_a_row_are_one = true, are_escaped = true, end_pieces = false;  // of spaces
  bool byte_fallback = false;  // an unknown character is its bytes; else several in a row are one token
  std::vector<std::string> pieces = {};                                  // that a text can have
  std::vector<std::string> symbols = {};                                 // those of users, which no rule changes
};
SentencePieceFacts sentence_piece_facts(std::string_view model, std::string_view what);

struct SentencePieceEntry {
  enum class Kind {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
  };  // as sentencepiece_model.proto counts them
  std::string piece;
  float score;
  Kind kind;
};
std::vector<SentencePieceEntry> sentence_piece_entries(std::string_view model, std::string_view what);  // by token
// The same model, whose texts get a space in front, or none.
std::string with_space_in_front(std::string model, bool space);

// A model that merges pairs, the highest score first.  A text gets a space in front and is taken as it is otherwise; an
// unknown character is written as its bytes, if there are pieces for bytes.  The tokens 0, 1 and 2 are the unknown one,
// the beginning and the end.
std::string sentence_piece_model(const std::vector<SentencePieceEntry>& pieces);

}  // namespace orrery::models
