// Views of analyses as sections of a report.
#pragma once

#include <span>

#include "models/inspection/base/view.h"
#include "models/reports/report.h"

namespace orrery::models {

// Returns the data of a section `components`.
Json components_json(const ComponentsView& tree);

void add_views(Json& sections, std::span<const View> views);

}  // namespace orrery::models
