// A map of layers x heads, of numbers with a sign.
#pragma once

#include "models/inspection/base/analysis.h"

namespace orrery::models {

struct HeadRow {
  std::string path;            // of the attention
  std::vector<double> values;  // per head; NaN: no value
};
// Returns the map; rows may have unequal numbers of heads. `none`: text where there is no value.
MapView head_map(const std::string& quantity, const std::vector<HeadRow>& rows, const std::string& none);

}  // namespace orrery::models
