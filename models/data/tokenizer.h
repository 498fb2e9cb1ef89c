// Tokenizers: from text to numbers and back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/registry.h"

namespace orrery::models {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;  // of the vocabulary: tokens are 0, 1, ..., size() - 1
  // Errors name what the vocabulary lacks.  decode(encode(text)) == text.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;  // a number that is no token is an Error
  virtual std::string save() const = 0;                                   // a JSON object; restore_tokenizer reads it
};

struct TokenizerEntry {
  std::string name, description;
  std::unique_ptr<Tokenizer> (*make)(std::string_view text);       // a vocabulary for this text
  std::unique_ptr<Tokenizer> (*restore)(const std::string& json);  // from what save wrote
};
Registry<TokenizerEntry>& tokenizers();

// A tokenizer for the text in a file.  "character": its Unicode characters, in the order of their code points; "byte":
// all 256 bytes.  tokenizers().at(name).make(text) does the same for a text at hand.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name, const std::string& path);
std::unique_ptr<Tokenizer> restore_tokenizer(const std::string& json);

}  // namespace orrery::models
