// Gradient checkpointing: backward computes a part of the graph again instead of saving its values.
#pragma once

#include <functional>

#include "engine/tensor/tensor.h"

namespace orrery {

// Returns f(x) and saves only x; backward computes f(x) again, records it and differentiates it.
// Chen et al. 2016, arXiv:1604.06174.
Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x);

}  // namespace orrery
