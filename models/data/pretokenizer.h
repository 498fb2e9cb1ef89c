// Pre-tokenization: a regular expression splits a text into pre-tokens, in which tokens are found.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::models {

class PreTokenizer {
 public:
  // Takes an expression as in tokenizer.json (models/data/oniguruma.h), or throws Error.
  explicit PreTokenizer(std::string pattern);
  PreTokenizer(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Passes the pre-tokens to `take`; joined, they are the text. A pre-token is a match, the text
  // between two matches, or a run of invalid UTF-8. An empty match splits the text at its position.
  // Throws Error if matching takes absurdly long.
  void each(std::string_view text, const std::function<void(std::string_view pretoken)>& take) const;
  // Like `each`, for the beginning of a longer text, as far as following text cannot change it.
  // Returns the bytes passed to `take`; continue after them.
  size_t each_complete(std::string_view text, const std::function<void(std::string_view pretoken)>& take) const;

 private:
  struct Compiled;
  // Returns the bytes passed to `take`: all, unless `more` text may change the last pre-tokens.
  size_t each_of_valid(std::string_view text, bool more, const std::function<void(std::string_view)>& take) const;

  std::string pattern_;
  std::unique_ptr<Compiled> compiled_;
};

// GPT-2's pattern: an English suffix such as 'll; letters, digits or other symbols with a space
// before them; spaces except the last one before a word. Radford et al. 2019, encoder.py.
extern const char* const gpt2_pattern;

}  // namespace orrery::models
