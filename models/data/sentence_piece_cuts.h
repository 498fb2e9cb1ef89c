// Where a text can be divided so that its parts have the tokens of the whole.  SentencePiece holds about 75 bytes for
// each byte that it encodes at once, so a long text comes to it in parts.
//
// The library normalizes a text from left to right: the longest key of a trie that begins at a place is replaced by the
// key's text, and where none begins a character stands for itself.  What comes out is cut into pieces.  Nothing on one
// side of two normalized characters a and b that follow each other can change the tokens of the other side if
//   a and b come from different replacements,
//   no piece of the model holds a and b in a row, and
//   a or b is a piece, because unknown characters in a row are one token, or bytes are written for unknown characters:
//   else both sides may have that token, where the whole has one;
// and a is not a space, because spaces at the end of a part can be dropped.  Users' symbols are pieces, too, which are
// found before any rule is.
//
// A text gets a space in front, or behind where spaces end pieces.  A part gets one in the same place for the space at
// which it was divided.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/data/sentence_piece_model.h"

namespace orrery::models {

// The trie and the texts of a model's rules of normalization, once check_sentence_piece_model has seen them.
class SentencePieceRules {
 public:
  explicit SentencePieceRules(std::string rules, std::vector<std::string> symbols = {});
  struct Replaced {
    size_t bytes;           // at the beginning of the text
    std::string_view text;  // that they become
    bool is_certain;        // no text that follows could change it
  };
  Replaced first(std::string_view text) const;  // of UTF-8 that is not empty

 private:
  std::string rules_;
  std::array<std::vector<std::string>, 256> symbols_;  // of users, by their first bytes; they stay as they are
};

class SentencePieceCuts {
 public:
  explicit SentencePieceCuts(SentencePieceFacts facts);
  struct Cut {
    size_t end, begin;            // of the part before and of the part behind; a space between them belongs to neither
    bool within_word;             // no space is there
    bool within_unknown = false;  // both sides may have the token of unknown characters, and the whole has one
  };
  // Each cut before a space in its order, and one within a word where none was for `spacing` bytes.  `more`: further
  // text follows, which changes none of them.
  void each(std::string_view text, size_t spacing, bool more, const std::function<void(const Cut&)>& take) const;
  // Spaces in a row are one to most models, so that no part can end between them: a text with one in place of each long
  // run; empty: it has no long run.
  std::string with_short_runs(std::string_view text) const;
  bool end_pieces() const { return facts_.end_pieces; }  // spaces, and a text gets one behind

 private:
  bool are_together(char32_t a, char32_t b) const;  // in a piece
  bool are_unknown(char32_t a, char32_t b) const;   // and may be one token
  bool are_apart(char32_t a, char32_t b) const { return !are_together(a, b) && !are_unknown(a, b); }

  SentencePieceFacts facts_;  // without pieces
  SentencePieceRules rules_;
  std::vector<char32_t> known_;     // characters that are pieces, sorted
  std::vector<uint64_t> together_;  // two characters in a row of any piece, sorted
};

}  // namespace orrery::models
