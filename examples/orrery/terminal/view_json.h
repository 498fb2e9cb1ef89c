// Views as JSON, with the values that plots and tables are made from.
#pragma once

#include "examples/orrery/terminal/json_output.h"
#include "models/inspection/base/view.h"

namespace orrery::program {

// Returns the members of every view (analysis, name, title, description, metrics, kind) and those
// of its kind: map, bars, table or lines. A missing value is null.
Json view_json(const models::View& view);

}  // namespace orrery::program
