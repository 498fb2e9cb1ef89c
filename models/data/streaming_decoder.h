// A decoder of tokens to text, one token at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::models {

class Tokenizer;

// The text of a token depends on the tokens before it: a SentencePiece piece has a leading space
// only if it does not begin the text, and several tokens may form one character. The results of
// `add` and the final `rest` join to the decoded text of all tokens, without that of `first`.
class StreamingDecoder {
 public:
  // `first`: the tokens before, such as those of a prompt. The tokenizer must outlive this object.
  explicit StreamingDecoder(const Tokenizer& tokenizer, std::vector<int32_t> first = {});
  std::string add(int32_t token);  // returns the new whole characters
  std::string rest();              // returns the bytes of an incomplete last character

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;  // the latest tokens, from one that has text by itself
  size_t returned_;              // bytes of their text that were returned
};

}  // namespace orrery::models
