// An interface of token sequence models, for text tasks and generation.
#pragma once

#include "nn/base/module.h"

namespace orrery::models {

class LanguageModel : public nn::Module {
 public:
  // forward: tokens (B, T) i32, T at most the context -> logits (B, T, vocabulary). With a cache in
  // the pass, tokens continue the cached ones, count with them, and are added to it.

  // Returns the logits of the last token alone, (B, vocabulary), for incremental decoding.
  virtual Tensor next(const Tensor& tokens, nn::ForwardPass& pass);
  virtual int64_t context() const = 0;         // maximum number of tokens
  virtual int64_t vocabulary() const = 0;      // number of tokens
  virtual int64_t prefix() const { return 0; }  // first tokens that attend to each other, which a cache takes at once
  nn::Cache make_cache() const { return {}; }  // for one batch of texts, under NoGrad
};

Tensor last_of(const Tensor& states);  // (B, T, C) -> (B, C)

}  // namespace orrery::models
