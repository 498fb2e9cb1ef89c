// Less memory for more arithmetic: part of a computation is done again in backward instead of being remembered.
#pragma once

#include <functional>

#include "engine/tensor/tensor.h"

namespace orrery {

// f(x), keeping only x: backward computes f again, recorded, and differentiates that.  Chen et al. 2016,
// arXiv:1604.06174.
Tensor recompute(std::function<Tensor(const Tensor&)> f, const Tensor& x);

}  // namespace orrery
