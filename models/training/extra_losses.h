// Extra losses that layers add to the task's loss. A layer's loss of micro-batch m is a mean over
// rows (attention weights, tokens or heads) without padding and fully masked rows. A step's loss is
//   sum_m n_m loss_m / sum_m n_m,   n_m: the tokens that micro-batch m reads (of both sides in translation)
// which is the mean over all rows of the step if each micro-batch has equally many rows per token.
#pragma once

#include <string>

#include "engine/ops/ops.h"
#include "engine/types/usage_error.h"
#include "nn/base/module.h"

namespace orrery::models {

// Returns the sum of the losses `name` of a forward pass; throws if no module adds such a loss.
inline Tensor extra_loss(const nn::ForwardPass& pass, const std::string& name) {
  Tensor sum;
  for (const nn::ForwardPass::Loss& one : pass.losses)
    if (one.name == name) sum = sum ? sum + one.value : one.value;
  check_usage(bool(sum), "train: losses.", name,
              " has a weight, but no module of this model computes this loss; set it to 0");
  return sum;
}

}  // namespace orrery::models
