// Finds positions at which a text can be split without a change of its tokens. SentencePiece needs
// about 75 bytes for each byte that it encodes at once, so a long text is encoded in parts.
//
// The library normalizes a text from left to right: it replaces the longest key of a trie at a
// position by its text, and keeps a character where no key begins. The result is split into pieces.
// Text before and after two consecutive normalized characters a and b has independent tokens if
//   a and b come from different replacements,
//   no piece of the model holds a followed by b, and
//   a or b is a piece, because consecutive unknown characters are one token, or unknown characters
//   become bytes: else both sides may have that token, where the whole has one;
// and a is not a space, because spaces at the end of a part can be dropped. User-defined symbols
// are pieces too; they are matched before any rule.
//
// The library adds a space before a text or, if spaces end pieces, after it. A part gets this space
// in place of the space at which the text was split.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/data/sentence_piece_model.h"

namespace orrery::models {

// Trie and texts of a model's normalization rules, which sentence_piece_info accepted.
class SentencePieceRules {
 public:
  explicit SentencePieceRules(std::string rules, std::vector<std::string> symbols = {});
  struct Replaced {
    size_t bytes;           // at the beginning of the text
    std::string_view text;  // their replacement
    bool is_certain;        // following text cannot change it
  };
  Replaced first(std::string_view text) const;  // text: UTF-8, not empty

 private:
  std::string rules_;
  std::array<std::vector<std::string>, 256> symbols_;  // user-defined, by first byte; not normalized
};

class SentencePieceCuts {
 public:
  explicit SentencePieceCuts(SentencePieceInfo info);
  struct Cut {
    size_t end, begin;            // of the parts before and after; a space between them is in neither
    bool within_word;             // not at a space
    bool within_unknown = false;  // both sides may have the unknown token, where the whole has one
  };
  // Passes each cut at a space, in order, and a cut within a word after `spacing` bytes without
  // one. If `more` text follows, passes only cuts that it cannot change.
  void each(std::string_view text, size_t spacing, bool more, const std::function<void(const Cut&)>& take) const;
  // Returns the text with one space for each long run of spaces, or "" without long runs. For most
  // models consecutive spaces are one, so no part can end between them.
  std::string with_short_runs(std::string_view text) const;
  bool end_pieces() const { return info_.end_pieces; }  // spaces end pieces; a text gets one at its end

 private:
  bool are_together(char32_t a, char32_t b) const;  // consecutive in a piece
  bool are_unknown(char32_t a, char32_t b) const;   // both, so they may be one token
  bool are_apart(char32_t a, char32_t b) const { return !are_together(a, b) && !are_unknown(a, b); }

  SentencePieceInfo info_;  // without entries
  SentencePieceRules rules_;
  std::vector<char32_t> known_;     // characters that are pieces, sorted
  std::vector<uint64_t> together_;  // pairs of consecutive characters in pieces, sorted
};

}  // namespace orrery::models
