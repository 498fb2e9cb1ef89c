// `orrery inspect` over many examples, or at all checkpoints of a run: metrics alone.
#pragma once

#include <string>

#include "examples/orrery/commands/inspect_settings.h"

namespace orrery::program {

// Returns mean, deviation and interval of each metric over s.examples held-out examples, evenly spread.
InspectResults analyze_many(const LoadedRun& trained, const InspectSettings& s, const std::string& run);
// Returns the metrics by step: of the example that is given, else of held-out ones. `last`: the run's last checkpoint.
InspectResults analyze_checkpoints(const LoadedRun& last, const InspectSettings& s, const std::string& run,
                                   bool gives_example);

}  // namespace orrery::program
