// Added tokens with a literal text, such as <|endoftext|>; matched before pre-tokenization.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/formats/json.h"

namespace orrery::models {

struct AddedToken {
  int64_t number;
  std::string text;                                // not empty
  bool strips_left = false, strips_right = false;  // white space before or after it belongs to it
  bool normalized = false;                         // matched after the tokens that are not normalized
  bool special = false;
  bool skipped = false;  // its text is encoded like any other text
};
// Adds a token to a list. If it is there already, merges its strip and special flags.
void add_once(std::vector<AddedToken>& all, const AddedToken& token);

class AddedTokens {
 public:
  void add(AddedToken token);
  const std::vector<AddedToken>& all() const { return all_; }
  std::optional<int32_t> number_of(std::string_view text) const;  // of the token with this text
  // Returns how many bytes decide whether a token begins at a position; 0 without tokens.
  size_t reach() const { return first_.longest + later_.longest; }
  bool can_strip() const { return strip_; }  // if any token strips, following text can change how a text ends

  struct Found {
    size_t begin, end;
    int32_t token;
  };
  // Finds tokens and the white space that belongs to them in a text, which must outlive this. The
  // longest token at a position wins. Normalized tokens are matched in the text between the others.
  class Matcher {
   public:
    Matcher(const AddedTokens& tokens, std::string_view text);
    // Returns the first token from `at`, the last one's end; if there is none, the end of the text.
    Found next(size_t at);

   private:
    // Adds white space within [from, to) to a token; returns an empty range at `to` without one.
    Found with_stripped(size_t begin, const AddedToken* token, size_t from, size_t to) const;

    const AddedTokens& tokens_;
    std::string_view text_;
    Found first_;  // the next token that is not normalized
  };

 private:
  // Tokens that are all normalized, or all not.
  struct Kind {
    std::vector<uint32_t> sorted;  // indices in all_, by text; equal texts in the order of adding
    std::bitset<256> first_bytes;  // of their texts
    size_t longest = 0;            // bytes
  };
  // Returns the longest token that the text begins with, or null.
  const AddedToken* longest_at(const Kind& kind, std::string_view text) const;
  // Returns the first token from `at` and moves `at` to it; null if there is none.
  const AddedToken* find(const Kind& kind, std::string_view text, size_t& at) const;

  std::vector<AddedToken> all_;
  Kind first_, later_;  // not normalized; normalized
  bool strip_ = false;
};

// Tokens in the files next to a tokenizer's own: added_tokens.json,
// tokenizer_config.json and special_tokens_map.json.
struct SidecarTokens {
  std::vector<AddedToken> added;     // with their numbers
  std::vector<std::string> special;  // texts of tokens in the vocabulary or in `added`
  std::vector<std::string> notes;    // sentences about unsupported settings in these files
  bool splits_special = false;       // special tokens are encoded like any other text
};
SidecarTokens read_sidecar_tokens(const std::string& folder);
bool is_special(const AddedToken& token, const SidecarTokens& sidecar);
bool is_skipped(const AddedToken& token, const SidecarTokens& sidecar);
// Reads {"content": "<s>", "lstrip": true, ...}. Throws TokenizerNotSupported on an invalid flag.
AddedToken added_token(int64_t number, const SortedJson& json, const std::string& what);

}  // namespace orrery::models
