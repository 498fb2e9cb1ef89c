// Views of analyses as sections of a report.
#pragma once

#include <span>

#include "models/inspection/base/view.h"
#include "models/reports/report.h"

namespace orrery::models {

void add_views(Json& sections, std::span<const View> views);

}  // namespace orrery::models
