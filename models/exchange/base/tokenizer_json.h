// A byte-level tokenizer of ours in the files of Hugging Face's tokenizers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/json.h"

namespace orrery::models {

// tokenizer.json and tokenizer_config.json, from what Tokenizer::save wrote for byte_pair.
void write_byte_pair_files(const std::string& folder, const Json& saved);

}  // namespace orrery::models
