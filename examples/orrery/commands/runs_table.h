// The runs below a folder as a table and as JSON, for `orrery runs`.
#pragma once

#include <string>
#include <string_view>

#include "examples/orrery/terminal/json_output.h"
#include "models/study/run_list.h"

namespace orrery::program {

// Returns a table that is at most `width` columns wide: long names are shortened, and settings that
// differ get a column while there is room.
std::string run_table(const std::string& folder, const models::RunList& list, size_t width);
// Returns {"folder", "runs": [...], "pools": [...]}; missing values are null.
Json run_list_json(const std::string& folder, const models::RunList& list);

std::string age_text(double seconds);  // 40s, 5m, 3h, 2d
// Cuts the middle of a name, so that it takes at most `width` columns: "very-l...-name".
std::string shortened(const std::string& name, size_t width);

}  // namespace orrery::program
