// What --probe=yes has found of a run (models/training/probe.h), in its report.
#pragma once

#include <span>

#include "models/reports/report.h"

namespace orrery::models {

// Sections of each run that has a probe.json: the residual stream as bars and with its gradients as a table, the ratios
// with their predictions.  One that cannot be read is a section that says so.
void add_probes(Json& sections, std::span<const ReportedRun> runs);

}  // namespace orrery::models
