#include "models/data/characters.h"

#include <algorithm>
#include <vector>

#include "models/formats/unicode.h"

namespace orrery::models {

std::optional<int64_t> characters_of_targets(const Tokenizer& tokenizer, const TokenSequence& tokens,
                                             std::optional<int32_t> end_of_document) {
  constexpr int64_t tokens_at_once = 1 << 16;
  const bool by_token = tokens.has_characters();
  if (!by_token && !end_of_document && tokens.characters_recorded()) return tokens.characters_recorded();
  const std::optional<int32_t> begin = tokenizer.begins_texts() ? tokenizer.begin() : std::nullopt,
                               end = tokenizer.end_of_text();
  int64_t count = 0;
  std::vector<int32_t> some, characters, targets;
  for (int64_t at = 1; at < tokens.size(); at += tokens_at_once) {
    some.resize(static_cast<size_t>(std::min(tokens_at_once, tokens.size() - at) + 1));
    tokens.read(at - 1, some);
    characters.assign(some.size(), 0);
    if (by_token) tokens.read_characters(at - 1, characters);
    targets.clear();
    for (size_t i = 1; i < some.size(); ++i) {
      if (some[i - 1] == end_of_document || tokenizer.is_mark(some[i])) continue;
      if (!by_token && (some[i] == begin || some[i] == end)) return std::nullopt;  // around a text, or in it
      targets.push_back(some[i]), count += characters[i];
    }
    if (by_token) continue;
    if (!tokenizer.decodes_exactly(targets)) return std::nullopt;
    count += count_characters(tokenizer.decode(targets));
  }
  return count;
}

}  // namespace orrery::models
