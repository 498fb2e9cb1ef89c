// The text of tokens that come one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::models {

class Tokenizer;

// What a token adds depends on those before it: a piece of SentencePiece has a space in front only where it does not
// begin the text, and several tokens may make one character.  All that `add` and, at the end, `rest` return is together
// what the tokenizer decodes of all tokens at once, after what it decodes of the first ones.
class RunningText {
 public:
  explicit RunningText(const Tokenizer& tokenizer, std::vector<int32_t> first = {});
  std::string add(int32_t token);  // what is new of whole characters
  std::string rest();              // the bytes of a character that nothing has completed

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;  // the last ones, from one on that has text of its own
  size_t told_;                  // bytes of their text
};

}  // namespace orrery::models
