#include "models/data/running_text.h"

#include <algorithm>
#include <utility>

#include "models/data/tokenizer.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

// Of a text, what further tokens leave as it is: not the first bytes of a character, nor what SentencePiece writes for
// each of them as long as the others are missing, which are three at most.
size_t settled(std::string_view text) {
  static constexpr std::string_view replacement = "\xEF\xBF\xBD";
  size_t end = end_of_characters(text);
  for (int i = 0; i < 3 && text.substr(0, end).ends_with(replacement); ++i) end -= replacement.size();
  return end;
}

}  // namespace

RunningText::RunningText(const Tokenizer& tokenizer, std::vector<int32_t> first)
    : tokenizer_(tokenizer), tokens_(std::move(first)), told_(tokenizer.decode(tokens_).size()) {}

std::string RunningText::add(int32_t token) {
  tokens_.push_back(token);
  const std::string text = tokenizer_.decode(tokens_);
  const size_t end = settled(text);
  std::string added = end > told_ ? text.substr(told_, end - told_) : "";
  if (end > told_) told_ = end;
  if (end < text.size()) return added;
  // Whatever comes now is written after whole characters as after this token, if it has some, or as without it.
  const std::string alone = tokenizer_.decode(std::vector<int32_t>{token});
  if (!alone.empty() && settled(alone) == alone.size())
    tokens_ = {token}, told_ = alone.size();
  else if (added.empty() && !text.empty())
    tokens_.pop_back();
  return added;
}

std::string RunningText::rest() {
  const std::string text = tokenizer_.decode(tokens_);
  return text.substr(std::min(std::exchange(told_, text.size()), text.size()));
}

}  // namespace orrery::models
