// An interface of models that write a target sequence from a source sequence, for translation.
#pragma once

#include "nn/base/module.h"

namespace orrery::models {

class TranslationModel : public nn::Module {
 public:
  // Encodes sources (B, Ts) i32 of these lengths (B) i32, both at most the context; undefined
  // lengths: no padding. Sets pass.encoder_output and pass.encoder_lengths.
  virtual void encode(const Tensor& sources, const Tensor& lengths, nn::ForwardPass& pass) = 0;
  // forward: targets so far, (B, Tt) i32 -> logits (B, Tt, vocabulary) of the token after each,
  // given pass.encoder_output. pass.lengths are the targets'. With a cache in the pass, tokens
  // continue the cached ones; pass.encoder_output must not change then.
  virtual int64_t context() const = 0;     // maximum number of tokens of a source, and of a target
  virtual int64_t vocabulary() const = 0;  // number of tokens, for both languages
};

}  // namespace orrery::models
