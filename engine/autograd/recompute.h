// Gradient checkpointing: backward recomputes a part of the graph, which saves memory.
#pragma once

#include <functional>

#include "engine/tensor/tensor.h"

namespace orrery {

// Returns f(x) and saves only x; backward computes f again, with recording, and differentiates it.
// Chen et al. 2016, arXiv:1604.06174.
Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x);

}  // namespace orrery
