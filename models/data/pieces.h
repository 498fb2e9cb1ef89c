// How a tokenizer cuts a text before it looks for tokens: a regular expression says what a piece is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace orrery::models {

class Pieces {
 public:
  // A regular expression as tokenizer.json has it (models/data/oniguruma.h).  An Error if it is none.
  explicit Pieces(std::string pattern);
  Pieces(Pieces&&) noexcept;
  ~Pieces();

  // Each match in its order; what lies between two matches is a piece as well, and so is a run of bytes that are no
  // UTF-8.  A match of nothing cuts where it is.  Together they are the text.  An Error if the expression takes
  // absurdly long.
  void each(std::string_view text, const std::function<void(std::string_view piece)>& take) const;
  // The same for the beginning of a longer text: as far as what follows cannot change.  Returns the bytes told,
  // which need not be shown again.
  size_t each_certain(std::string_view text, const std::function<void(std::string_view piece)>& take) const;

 private:
  struct Compiled;
  // Returns the bytes told: all, unless more text may follow and change the last pieces.
  size_t each_of_valid(std::string_view text, bool more, const std::function<void(std::string_view)>& take) const;

  std::string pattern_;
  std::unique_ptr<Compiled> compiled_;
};

// GPT-2's: an English ending such as 'll; letters, digits or other signs with a space before them; spaces but for the
// last one before a word.  Radford et al. 2019, encoder.py.
extern const char* const gpt2_pattern;

}  // namespace orrery::models
