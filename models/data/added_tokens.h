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
  bool normalized = false;                         // it is looked for after those that are not
  bool special = false;
  bool skipped = false;  // where it stands it is text as any other
};
// Adds a token to a list; one that is there already also strips what this one strips.
void add_once(std::vector<AddedToken>& all, const AddedToken& token);

class AddedTokens {
 public:
  void add(AddedToken token);
  const std::vector<AddedToken>& all() const { return all_; }
  // So many bytes from a place on decide whether one begins there; 0: there is none.
  size_t reach() const { return first_.longest + later_.longest; }
  bool can_strip() const { return strip_; }  // any of them, so that what follows a text can change its end

  struct Found {
    size_t begin, end;
    int32_t token;
  };
  // Where they stand in a text, which must outlive it, with the white space that is a part of them.  Of those that
  // begin at one place the longest counts; the normalized ones are looked for in what the others leave.
  class Places {
   public:
    Places(const AddedTokens& tokens, std::string_view text);
    // The first one from `at` on, which is the last one's end; none: both places are the text's end.
    Found next(size_t at);

   private:
    // With white space no farther than that; no token: none.
    Found with_stripped(size_t begin, const AddedToken* token, size_t from, size_t to) const;

    const AddedTokens& tokens_;
    std::string_view text_;
    Found first_;  // the next one of those that are not normalized
  };

 private:
  // The tokens of one kind.
  struct Kind {
    std::vector<uint32_t> sorted;  // by their texts, of the same text the first one first
    std::bitset<256> first_bytes;  // of their texts
    size_t longest = 0;            // bytes
  };
  // Of those that the text begins with; null: none.
  const AddedToken* longest_at(const Kind& kind, std::string_view text) const;
  // The first one from `at` on, which becomes its place; null: none.
  const AddedToken* find(const Kind& kind, std::string_view text, size_t& at) const;

  std::vector<AddedToken> all_;
  Kind first_, later_;  // those that are not normalized, and those that are
  bool strip_ = false;
};

// What the files beside a tokenizer's own say of such tokens: added_tokens.json, tokenizer_config.json and
// special_tokens_map.json.
struct TokensBeside {
  std::vector<AddedToken> added;     // with their numbers
  std::vector<std::string> special;  // by their texts: tokens of the vocabulary, or of those above
  std::vector<std::string> notes;    // sentences about what they ask for and what is not done
  bool splits_special = false;       // those that are special are text as any other
};
TokensBeside tokens_beside(const std::string& folder);
bool is_skipped(const AddedToken& token, const TokensBeside& beside);
// {"content": "<s>", "lstrip": true, ...}.  TokenizerNotSupported: a value that is no yes or no.
AddedToken added_token(int64_t number, const SortedJson& json, const std::string& what);

}  // namespace orrery::models
