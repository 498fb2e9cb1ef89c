// Views on a terminal: tables and bars in full, one map in shades, several maps as a note.
#pragma once

#include <string>

#include "models/inspection/base/view.h"

namespace orrery::program {

// Returns the view's title, caption and content in lines of the terminal's width, at most 100
// columns except for tables.
std::string view_text(const models::View& view);

}  // namespace orrery::program
