// A model that ends in a linear head: its logits are a function of the last state of its residual stream alone, so that
// other states can be asked as well, many at once (models/inspection/base/residual_stream.h).
#pragma once

#include "nn/base/module.h"

namespace orrery::models {

struct Head {
  Tensor weight, bias;  // (answers, C); (answers) or undefined
};

class HeadedModel {
 public:
  virtual ~HeadedModel() = default;
  // What the head reads if these are the last states of the stream, (B, T, C), as the hook `residual` shows them:
  // normalized, and of images pooled to (B, C).
  virtual Tensor before_head(const Tensor& states, nn::Pass& pass) = 0;
  virtual Head head() const = 0;
};

}  // namespace orrery::models
