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

struct SentencePieceSpaces {
  // Before which of a text's bytes it can be divided, the parts having the tokens of the whole: where no piece goes on
  // beyond a space, a part begins with the piece of the space that the model puts in front, in place of its own.  Line
  // breaks are spaces by the rules of nmt.  Empty: nowhere, for a piece may hold spaces, the model tells spaces in a
  // row apart, or its rules of normalization are not the library's.
  std::string_view before = "";
  bool sums_scores = false;  // a text's pieces are those with the largest sum (unigram), not what pairs merge into
};
SentencePieceSpaces sentence_piece_spaces(std::string_view model, std::string_view what);

struct SentencePieceEntry {
  enum class Kind { normal = 1, unknown = 2, control = 3, byte = 6 };  // as sentencepiece_model.proto counts them
  std::string piece;
  float score;
  Kind kind;
};
// A model that merges pairs, the highest score first.  A text gets a space in front and is taken as it is otherwise; an
// unknown character is written as its bytes, if there are pieces for bytes.  The tokens 0, 1 and 2 are the unknown one,
// the beginning and the end.
std::string sentence_piece_model(const std::vector<SentencePieceEntry>& pieces);

}  // namespace orrery::models
