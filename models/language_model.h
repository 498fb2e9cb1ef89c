// A model of token sequences, whichever: what tasks over text and generation ask of it.
#pragma once

#include "nn/base/module.h"

namespace orrery::models {

class LanguageModel : public nn::Module {
 public:
  // forward: tokens (B, T) i32, T at most the context -> logits (B, T, vocabulary).  With a cache in the pass, the
  // tokens go on after those that the cache holds, which count too; at the end it holds all of them.
  // Its last token's alone, (B, vocabulary): all that going on with a text needs.
  virtual Tensor next(const Tensor& tokens, nn::Pass& pass);
  virtual int64_t context() const = 0;         // tokens that it sees at once
  virtual int64_t vocabulary() const = 0;      // tokens that exist
  nn::Cache make_cache() const { return {}; }  // for one batch of texts, under NoGrad
};

Tensor last_of(const Tensor& states);  // (B, T, C) -> (B, C)

}  // namespace orrery::models
