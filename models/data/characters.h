// The characters of a text that its tokens were made of.
#pragma once

#include <cstdint>
#include <optional>

#include "models/data/token_sequence.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

// Returns the number of Unicode characters of the text that all tokens but the first were made of,
// or nothing if it is unknown. The text's own count is used where the sequence has it; else decoded
// characters, if the tokenizer decodes these tokens exactly. Marks, such as <|endoftext|>, and the
// tokens that are added around a text have no characters. With an `end_of_document` the token after
// it does not count.
std::optional<int64_t> characters_of_targets(const Tokenizer& tokenizer, const TokenSequence& tokens,
                                             std::optional<int32_t> end_of_document = {});

}  // namespace orrery::models
