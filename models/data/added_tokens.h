// Tokens that stand for a text as it is, such as <|endoftext|>: they are looked for before a text is cut any other way.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/formats/json.h"

namespace orrery::models {

struct AddedToken {
  int64_t number;
  std::string text;                                // not empty
  bool strips_left = false, strips_right = false;  // white space before it, or behind it, is a part of it
};
// Adds a token to a list; one that is there already also strips what this one strips.
void add_once(std::vector<AddedToken>& all, const AddedToken& token);

class AddedTokens {
 public:
  void add(AddedToken token);
  const std::vector<AddedToken>& all() const { return all_; }
  size_t longest() const { return longest_; }  // bytes of one; 0: there is none
  bool can_strip() const { return strip_; }    // any of them, so that what follows a text can change its end

  struct Found {
    size_t begin, end;
    int32_t token;
  };
  // Where they stand in a text, which must outlive it, with the white space that is a part of them.  Of those that
  // begin at one place the longest counts.
  class Places {
   public:
    Places(const AddedTokens& tokens, std::string_view text) : tokens_(tokens), text_(text) {}
    Found next(size_t at) const;  // the first one from `at` on; none: both places are the text's end

   private:
    Found with_stripped(Found found, const AddedToken& token, size_t at) const;

    const AddedTokens& tokens_;
    std::string_view text_;
  };

 private:
  const AddedToken* longest_at(std::string_view text) const;  // of those that the text begins with; null: none

  std::vector<AddedToken> all_;
  std::vector<uint32_t> sorted_;   // all of them by their texts, of the same text the first one first
  std::bitset<256> first_bytes_;  // of their texts
  size_t longest_ = 0;
  bool strip_ = false;
};

// What the files beside a tokenizer's own say of such tokens: added_tokens.json, tokenizer_config.json and
// special_tokens_map.json.
struct TokensBeside {
  std::vector<AddedToken> added;     // with their numbers
  std::vector<std::string> special;  // by their texts: tokens of the vocabulary, or of those above
  std::vector<std::string> notes;    // sentences about what they ask for and what is not done
};
TokensBeside tokens_beside(const std::string& folder);
// {"content": "<s>", "lstrip": true, ...}.  TokenizerNotSupported: a value that is no yes or no.
AddedToken added_token(int64_t number, const SortedJson& json, const std::string& what);

}  // namespace orrery::models
