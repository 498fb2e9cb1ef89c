// The tokens that the files of a tokenizer's folder put around a text: the post_processor of tokenizer.json, or where
// there is no such file, tokenizer_config.json and special_tokens_map.json.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/data/tokenizer.h"

namespace orrery::models {

struct TextEnds {
  std::optional<bool> begins = {};      // a token comes before each text; none: no file says whether
  std::optional<int64_t> number = {};   // of that token, where the files give one
  std::string name = {};                // or its text; empty: the tokenizer's own, or the model's
  std::vector<std::string> notes = {};  // what else stands around a text and is not put there
};
TextEnds text_ends(const std::string& folder);

// The folder's tokenizer, used as those files say.
std::unique_ptr<Tokenizer> with_text_ends(std::unique_ptr<Tokenizer> tokenizer, const std::string& folder);

}  // namespace orrery::models
