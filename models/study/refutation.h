// Parser of the conditions that refute a claim: "relu > softmax - 0.01" (claim.h).
#pragma once

#include <span>
#include <string>

#include "models/study/claim.h"

namespace orrery::models {

// Throws for an invalid form, unknown variant or equality without margin. Errors begin with `what`.
Comparison parse_refutation(const std::string& what, const std::string& text, std::span<const std::string> variants);

}  // namespace orrery::models
