// Losses.
#pragma once

#include <string>

#include "engine/registry.h"
#include "engine/tensor.h"

namespace orrery::nn {

struct LossEntry {
  std::string name, formula, source, parameters = {}, keeps = {};  // as in nn/entry.h
};
Registry<LossEntry>& losses();

// Mean over the targets of  ln sum_v exp(logits_v) - logits_target, in nats.  logits (..., V), targets (...) i32; a
// target of -1 is left out of the sum and of the mean.  The logits' buffer is reused for their gradient if the caller
// has let go of it: pass them as a temporary.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets);

}  // namespace orrery::nn
