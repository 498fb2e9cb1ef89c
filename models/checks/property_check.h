// Checks of the properties that an ActivationInfo states, against the formula, for `orrery gradcheck`.
#pragma once

#include <string>
#include <vector>

#include "nn/formulas/activation.h"

namespace orrery::models {

// Returns a message for each false property, with the point, the stated and the found value. Checks
// limits and kinks at the default constants only; parameters have their initial values.
std::vector<std::string> property_errors(const nn::Activation& f);

}  // namespace orrery::models
