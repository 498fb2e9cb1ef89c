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
  void build_index();  // after the last add, before a text is matched
  const std::vector<AddedToken>& all() const { return all_; }
  std::optional<int32_t> number_of(std::string_view text) const;  // of the token with this text
  // Returns how many bytes decide whether a token begins at a position; 0 without tokens.
  size_t reach() const { return first_.longest + later_.longest; }
  bool can_strip() const { return strip_; }  // if any token strips, following text can change how a text ends

  struct Found {
    size_t begin, end;
    std::optional<int32_t> token;  // none: the end of the text
  };
  // Finds tokens and the white space that belongs to them in a text, which must outlive this. The
  // longest token at a position wins. Normalized tokens are matched in the text between the others.
  // As in Hugging Face's tokenizers, white space that belongs to a token may hold another token: its
  // `begin` is then the last one's end, and its `end` may be before that.
  class Matcher {
   public:
    Matcher(const AddedTokens& tokens, std::string_view text);
    // Returns the first token from `at`, the last one's end; if there is none, the end of the text.
    Found next(size_t at);

   private:
    // Adds white space within [from, to) to a token; returns an empty range at `to` without a token.
    Found with_stripped(size_t begin, const AddedToken* token, size_t from, size_t to) const;

    const AddedTokens& tokens_;
    std::string_view text_;
    std::optional<Found> first_;               // the next token that is not normalized, once it is found
    size_t first_from_ = 0, later_from_ = 0;  // where the search for the next token of a kind begins
  };

 private:
  // Tokens that are all normalized, or all not, as an Aho-Corasick automaton (Aho, Corasick 1975):
  // the time to match a text does not depend on the number of tokens.
  struct Kind {
    struct Node {  // the text on the path from the root, node 0
      uint32_t first_child = 0, children = 0;  // adjacent, by their byte
      uint32_t suffix = 0;                     // node of the longest proper suffix of the text
      uint32_t ending = 0;                     // node of the longest suffix that is a token; 0: none
      uint32_t depth = 0;                      // bytes of the text
      uint32_t token = 0;                      // index in all_, of a text that is a token
      unsigned char byte = 0;                  // the last one
    };
    std::vector<Node> nodes;  // by depth
    std::bitset<256> first_bytes;
    size_t longest = 0;  // bytes
  };
  void build(Kind& kind, std::vector<uint32_t> sorted) const;
  static uint32_t child_of(const Kind& kind, uint32_t node, unsigned char byte);  // 0: none
  // Returns the first token from `at`, the longest there, and moves `at` to it; null if there is none.
  const AddedToken* first_from(const Kind& kind, std::string_view text, size_t& at) const;
  // Returns the first token that is not skipped, as first_from.
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
