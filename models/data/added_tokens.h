// Tokens that stand for a text as it is, such as <|endoftext|>: they are looked for before a text is cut any other way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

struct AddedToken {
  int64_t number;
  std::string text;  // not empty
};

class AddedTokens {
 public:
  void add(AddedToken token);
  const std::vector<AddedToken>& all() const { return all_; }
  size_t longest() const { return longest_; }  // bytes of one; 0: there is none

  struct Found {
    size_t begin, end;
    int32_t token;
  };
  // Where they stand in a text, which must outlive it.  Of those that begin at one place the longest counts.
  class Places {
   public:
    Places(const AddedTokens& tokens, std::string_view text);
    Found next(size_t at);  // the first one from `at` on, which may not fall; none: both places are the text's end

   private:
    const std::vector<AddedToken>& all_;
    std::string_view text_;
    std::vector<size_t> places_;  // of each the next one
  };

 private:
  std::vector<AddedToken> all_;
  size_t longest_ = 0;
};

// What the files beside a tokenizer's own say of such tokens: added_tokens.json, tokenizer_config.json and
// special_tokens_map.json.
struct TokensBeside {
  std::vector<AddedToken> added;     // with their numbers
  std::vector<std::string> special;  // by their texts: tokens of the vocabulary, or of those above
};
// TokenizerNotSupported: one of them takes the spaces around it.
TokensBeside tokens_beside(const std::string& folder);

}  // namespace orrery::models
