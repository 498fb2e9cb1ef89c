// Tokens around a text, as set by the files of a tokenizer's folder: the post_processor of
// tokenizer.json or, without it, tokenizer_config.json and special_tokens_map.json. These two also
// name the token between documents, eos_token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/data/tokenizer.h"

namespace orrery::models {

struct TextEnds {
  std::optional<bool> begins = {};      // a token precedes each text; empty: not specified
  std::optional<int64_t> number = {};   // id of that token, if the files give it
  std::string name = {};                // or its text; empty: the begin token of the tokenizer or model
  std::vector<std::string> notes = {};  // about other tokens around a text, which are not added
};
// Reads a folder's files; absent ones specify nothing. Throws Error if a flag is not true or false.
TextEnds text_ends(const std::string& folder);

// Returns true if the folder's files name the tokenizer's token between documents.
bool names_end(const std::string& folder, const Tokenizer& tokenizer);

// Returns the folder's tokenizer with the settings of those files.
std::unique_ptr<Tokenizer> with_text_ends(std::unique_ptr<Tokenizer> tokenizer, const std::string& folder);

}  // namespace orrery::models
