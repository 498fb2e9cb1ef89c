// Text as tokens: a training and a validation part, random crops of the one, consecutive windows over the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/math/random.h"
#include "engine/system/hash.h"
#include "engine/tensor/tensor.h"
#include "models/data/token_sequence.h"
#include "models/data/tokenizer.h"

namespace orrery::models {

struct Batch {
  Tensor inputs, targets;  // (B, T) i32; targets are the inputs one token later
};

class Text {
 public:
  // A file or a folder of text, or of tokens (models/data/prepared.h).  The first tokens are for training; the last
  // `validation_fraction`, in [0, 1), for validation, unless the data say themselves which are.  Errors: what cannot be
  // read or is empty, a fraction outside, what the tokenizer refuses.
  Text(const std::string& path, const Tokenizer& tokenizer, double validation_fraction = 0.1);
  const TokenSequence& train() const { return train_; }
  const TokenSequence& validation() const { return validation_; }
  const Fingerprint& fingerprint() const { return fingerprint_; }
  const Fingerprint& division() const { return division_; }  // into files; empty: it is one, or tokens
  // An Error with the numbers if training has no crop of `context` tokens and the token after it, or if there is a
  // validation part without two tokens.
  void check_context(int64_t context) const;

 private:
  std::string path_;
  Fingerprint fingerprint_, division_;
  TokenSequence train_, validation_;
};

// An Error if memory cannot hold the fewest tokens that a tokenizer of that name, or one of that setting, can make of
// the text.  Only sizes of files are read for it.
void check_text_fits(const std::string& path, const std::string& tokenizer);

class TextBatches {  // random crops; which ones depends on (seed, step, micro-batch) alone, so that resuming agrees
 public:
  TextBatches(TokenSequence tokens, int64_t batch, int64_t context, uint64_t seed);
  Batch at(int64_t step, int64_t micro_batch = 0) const;  // each tensor (batch, context)

 private:
  TokenSequence tokens_;
  int64_t batch_, context_;
  RandomKey key_;
};

// Packed documents, each ending with the token `end`: the document of each token, (B, T) i32, counted from 0 in every
// row.  What follows an end is another document's first token, which is no target: it becomes -1.
Tensor separate_documents(Batch& batch, int32_t end);

// An Error, of the text `what`, if no token follows another one of its document.
void check_documents(const TokenSequence& tokens, int32_t end, const std::string& what);

// Every token but the first is a target exactly once.  Windows of `context` tokens, up to `batch` at a time; what is
// left over at the end is a batch of one shorter window.  Ends early where `take` returns false.
void each_window(const TokenSequence& tokens, int64_t context, int64_t batch,
                 const std::function<bool(const Batch&)>& take);

}  // namespace orrery::models
