// A model that writes one sequence while it reads another, whichever: what translation asks of it.
#pragma once

#include "nn/base/module.h"

namespace orrery::models {

class TranslationModel : public nn::Module {
 public:
  // Reads sources (B, Ts) i32 of these lengths (B) i32, both at most the context; undefined lengths: all are whole.
  // What it makes of them is left in pass.memory and pass.memory_lengths.
  virtual void encode(const Tensor& sources, const Tensor& lengths, nn::Pass& pass) = 0;
  // forward: what is written so far, (B, Tt) i32 -> logits (B, Tt, vocabulary) of the token after each, by what
  // pass.memory holds.  pass.lengths are the targets'.  With a cache in the pass, the tokens go on after those that
  // the cache holds, and the memory must stay the same.
  virtual int64_t context() const = 0;     // tokens of a source, and of a target
  virtual int64_t vocabulary() const = 0;  // tokens that exist, in both languages
};

}  // namespace orrery::models
