// What would refute a claim, read: "relu > softmax - 0.01" (claim.h).
#pragma once

#include <span>
#include <string>

#include "models/study/claim.h"

namespace orrery::models {

// Errors begin with `what`: a form that is none, a variant that is none of `variants`, an equality without a margin.
Comparison parse_refutation(const std::string& what, const std::string& text, std::span<const std::string> variants);

}  // namespace orrery::models
