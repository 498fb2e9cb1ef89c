// The parts that runs are made of, as the catalogue has them.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "models/reports/report.h"

namespace orrery::models {

// The head of the file that holds a part: formula, derivative, what is kept.  Empty if it is not known.
using Derivation = std::function<std::string(const std::string& family, const std::string& name)>;

// A section of kind `formula` with the entry of every part that the settings name, those in specs too: the dense and
// the gelu of dense(gelu), the rms of softmax(qk_norm=rms).
void add_parts(Json& sections, std::span<const ReportedRun> runs, const Derivation& derivation);

}  // namespace orrery::models
