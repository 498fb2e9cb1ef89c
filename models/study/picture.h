// What a claim has measured, as one small picture: over the swept values if there are any, else variant by variant.
#pragma once

#include <string>

#include "models/formats/output_file.h"
#include "models/study/judged_claim.h"

namespace orrery::models {

OutputKind picture_kind();
// SVG, in the colours of the reader's theme: means of the claim's first metric with Student's 95 % intervals.
std::string picture_of(const Claim& claim, const Measurements& measured, const std::string& verdict);

}  // namespace orrery::models
