#pragma once

#include <cmath>

#include "nn/base/initialization.h"
#include "nn/base/module.h"

namespace orrery::testing {

// Moves parameters far from their initial values: to N(0, std^2) or, if bounded on both sides, to
// their midpoint. Those with a lower bound alone keep their values.
inline void randomize_parameters(nn::Module& model, double std) {
  for (const nn::NamedParameter& p : nn::parameters_of(model)) {
    const double low = p.parameter->min_value, high = p.parameter->max_value;
    if (std::isfinite(low) && !std::isfinite(high)) continue;
    fill(p.parameter->value, std::isfinite(low) ? nn::constant((low + high) / 2) : nn::normal(std),
         RandomKey{9, 1}.derive(p.path));
  }
}

}  // namespace orrery::testing
