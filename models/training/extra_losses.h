// The losses that layers add to the task's.  A layer's loss of a micro-batch m is the mean over its rows: of attention
// weights, of tokens, of heads, as the loss says; padding and rows that see nothing do not count.  A step's is
//   sum_m n_m loss_m / sum_m n_m,   n_m: the tokens that micro-batch m reads (of both sides in translation)
// which is the mean over all rows of the step if each micro-batch has as many rows for a token.
#pragma once

#include <string>

#include "engine/ops/ops.h"
#include "engine/types/check.h"
#include "nn/base/module.h"

namespace orrery::models {

// The sum of a pass's losses of that name; an Error if nothing in the model has one.
inline Tensor extra_loss(const nn::Pass& pass, const std::string& name) {
  Tensor sum;
  for (const nn::Pass::Loss& one : pass.losses)
    if (one.name == name) sum = sum ? sum + one.value : one.value;
  check(bool(sum), "train: losses.", name, " has a weight, but nothing in this model has that loss");
  return sum;
}

}  // namespace orrery::models
