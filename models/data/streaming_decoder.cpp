#include "models/data/streaming_decoder.h"

#include <algorithm>
#include <utility>

#include "models/data/tokenizer.h"
#include "models/formats/unicode.h"

namespace orrery::models {
namespace {

// Returns the bytes of a text that further tokens cannot change. Excludes an incomplete character,
// or up to three U+FFFD at the end, because SentencePiece writes one for each byte of it.
size_t stable_length(std::string_view text) {
  static constexpr std::string_view replacement = "\xEF\xBF\xBD";
  size_t end = end_of_characters(text);
  for (int i = 0; i < 3 && text.substr(0, end).ends_with(replacement); ++i) end -= replacement.size();
  return end;
}

}  // namespace

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, std::vector<int32_t> first)
    : tokenizer_(tokenizer), tokens_(std::move(first)), returned_(tokenizer.decode(tokens_).size()) {}

std::string StreamingDecoder::add(int32_t token) {
  tokens_.push_back(token);
  const std::string text = tokenizer_.decode(tokens_);
  const size_t end = stable_length(text);
  std::string added = end > returned_ ? text.substr(returned_, end - returned_) : "";
  if (end > returned_) returned_ = end;
  if (end < text.size()) return added;
  // All characters are complete, so later text depends at most on this token, if it has text.
  const std::string alone = tokenizer_.decode(std::vector<int32_t>{token});
  if (!alone.empty() && stable_length(alone) == alone.size())
    tokens_ = {token}, returned_ = alone.size();
  else if (added.empty() && !text.empty())
    tokens_.pop_back();
  return added;
}

std::string StreamingDecoder::rest() {
  const std::string text = tokenizer_.decode(tokens_);
  return text.substr(std::min(std::exchange(returned_, text.size()), text.size()));
}

}  // namespace orrery::models
