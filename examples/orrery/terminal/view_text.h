// Views on a terminal: tables and bars as they are, one map by shades of grey, many maps by a word about them.
#pragma once

#include <string>

#include "models/inspection/base/view.h"

namespace orrery::program {

std::string view_text(const models::View& view);

}  // namespace orrery::program
