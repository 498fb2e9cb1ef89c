// What an ActivationInfo states, held against the formula.
#pragma once

#include <string>
#include <vector>

#include "nn/formulas/activation.h"

namespace orrery::nn {

// A sentence for each fact that is false, with the place, what is stated and what was found; none if all are true.
// Limits and kinks are stated for the default constants and looked at there alone; parameters are the initial ones.
std::vector<std::string> false_facts(const Activation& f);

}  // namespace orrery::nn
