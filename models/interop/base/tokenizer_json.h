// Writes orrery's tokenizers as Hugging Face's files.
#pragma once

#include <string>

#include "models/formats/json.h"

namespace orrery::models {

// Writes tokenizer.json or tokenizer.model, tokenizer_config.json and added_tokens.json; nothing
// for "token_ids". Returns whether reading the files restores the tokenizer.
bool write_tokenizer_files(const std::string& folder, const Json& saved);

}  // namespace orrery::models
