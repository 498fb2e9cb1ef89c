// The losses that layers add to the task's.
#pragma once

#include <string>

#include "engine/base/check.h"
#include "engine/ops/ops.h"
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
