#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "nn/base/initialization.h"
#include "nn/base/module.h"

namespace orrery::testing {

inline nn::Parameter* parameter_at(nn::Module& module, const std::string& path) {
  for (const nn::NamedParameter& p : nn::parameters_of(module))
    if (p.path == path) return p.parameter;
  FAIL("no parameter '", path, "'");
  return nullptr;
}

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
