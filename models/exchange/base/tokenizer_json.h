// A tokenizer of ours in the files of Hugging Face's programs.
#pragma once

#include <string>

#include "models/formats/json.h"

namespace orrery::models {

// Writes what there is of it, from what Tokenizer::save wrote: tokenizer.json or tokenizer.model, tokenizer_config.json
// and added_tokens.json; nothing for one of numbers.  Returns whether the files alone are read back as the same one.
bool write_tokenizer_files(const std::string& folder, const Json& saved);

}  // namespace orrery::models
