// A small plot of a claim's measurements: over the swept values, or one row per variant.
#pragma once

#include <string>

#include "models/formats/output_file.h"
#include "models/study/claim_result.h"

namespace orrery::models {

OutputKind plot_kind();
// Returns an SVG in the reader's colour theme: means of the first metric, Student's 95 % intervals.
std::string claim_plot(const Claim& claim, const Measurements& measured, const std::string& verdict);

}  // namespace orrery::models
