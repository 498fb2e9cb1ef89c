// Text as tokens: random crops of a training split, consecutive windows over a validation split.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/math/random.h"
#include "engine/system/hash.h"
#include "engine/tensor/tensor.h"
#include "models/data/token_sequence.h"
#include "models/data/tokenizer.h"
#include "models/data/training_data.h"

namespace orrery::models {

struct Batch {
  Tensor inputs, targets;  // (B, T) i32; targets are the inputs one token later
};

class Text {
 public:
  // Reads a file or folder of any format (models/data/text_format.h). The last
  // `validation_fraction`, in [0, 1), is for validation, unless the data has a validation split.
  // Throws Error on unreadable or empty data, an invalid fraction, text the tokenizer rejects, or
  // tokens that another tokenizer made.
  Text(const TextSource& source, const Tokenizer& tokenizer, double validation_fraction = 0.1);
  const TokenSequence& train() const { return train_; }
  const TokenSequence& validation() const { return validation_; }
  // Returns how many of the first tokens would be for training with this validation_fraction.
  int64_t training_tokens(double validation_fraction) const;
  const Fingerprint& fingerprint() const { return fingerprint_; }
  // Returns the data that hold these tokens: the whole text, then its files if there are several;
  // for prepared tokens their files and the texts that they were made of.
  const std::vector<TextPart>& parts() const { return parts_; }
  // Returns the fingerprint of where the text splits into files; empty for one file, or for tokens.
  const Fingerprint& division() const { return division_; }
  const std::vector<std::string>& notes() const { return notes_; }  // about how files are read
  // Throws Error, with the numbers, if training has fewer than `context` + 1 tokens, or if a
  // validation split has only one token.
  void check_context(int64_t context) const;

 private:
  std::string path_;
  Fingerprint fingerprint_, division_;
  std::vector<TextPart> parts_;
  std::vector<std::string> notes_;
  TokenSequence train_, validation_;
  std::optional<TokenSequence> whole_;  // train_ and validation_; none: the data has a validation split
};

// Throws Error if memory cannot hold the fewest tokens that `tokenizer`, a value of --tokenizer,
// can make of the text. Reads only the sizes of files.
void check_text_fits(const TextSource& source, const std::string& tokenizer);

class TextBatches {  // random crops, which depend only on (seed, step, micro-batch), so a resumed run is identical
 public:
  TextBatches(TokenSequence tokens, int64_t batch, int64_t context, uint64_t seed);
  Batch at(int64_t step, int64_t micro_batch = 0) const;  // each tensor (batch, context)

 private:
  TokenSequence tokens_;
  int64_t batch_, context_;
  RandomKey rng_;
};

// Sets the target of each token `end`, which would be the next document's first token, to -1, which
// losses ignore. Returns the index of each token's document in its row, (B, T) i32, from 0.
Tensor separate_documents(Batch& batch, int32_t end);

// Sets the first `count` targets of each row to -1.
void leave_out_first_targets(Batch& batch, int64_t count);

// Throws Error if every document is a single token. The message names the text as `what`.
void check_documents(const TokenSequence& tokens, int32_t end, const std::string& what);

// Calls take with up to `batch` windows of `context` tokens at a time, and with the rest as one
// shorter window. Every token except the first is a target once. Stops if `take` returns false.
void each_window(const TokenSequence& tokens, int64_t context, int64_t batch,
                 const std::function<bool(const Batch&)>& take);

}  // namespace orrery::models
