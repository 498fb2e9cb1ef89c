// A model with a linear head: logits depend only on the last state of the residual stream, so the
// head applies to earlier states too (models/inspection/base/residual_stream.h).
#pragma once

#include "nn/base/module.h"

namespace orrery::models {

struct Head {
  Tensor weight, bias;  // (tokens or classes, C); (tokens or classes) or undefined
};

class HeadedModel {
 public:
  virtual ~HeadedModel() = default;
  // Returns the head's input for states of the residual stream (B, T, C), as in the hook
  // `residual`, as if they were its last: normalized, and for images pooled to (B, C).
  virtual Tensor before_head(const Tensor& states, nn::ForwardPass& pass) = 0;
  virtual Head head() const = 0;
};

}  // namespace orrery::models
