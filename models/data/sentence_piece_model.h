// What the library of SentencePiece takes on trust in a model, looked at before it does.
#pragma once

#include <string_view>

namespace orrery::models {

// A .model is a message of protobuf.  Its rules of normalization are a trie and the texts that its leaves point to, in
// which the library goes wherever a number leads.  An Error that begins with `what` if one leads outside, or if the
// message has no form.
void check_sentence_piece_model(std::string_view model, std::string_view what);

}  // namespace orrery::models
