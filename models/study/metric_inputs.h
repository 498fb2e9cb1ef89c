// Inputs of metrics that are computed from trained models: the tables [example] and [few_shot].
#pragma once

#include <toml++/toml.h>

#include "models/study/claim.h"

namespace orrery::models {

// Reads these tables of a claim whose metrics are known. Errors name file and line: a table that no
// metric needs, a metric without its table.
void read_inputs(Claim& claim, const toml::table& table);

}  // namespace orrery::models
