// The report of signal propagation, measured by --signal_propagation=yes
// (models/training/signal_propagation.h).
#pragma once

#include <span>

#include "models/reports/report.h"

namespace orrery::models {

// Appends, for each run with a signal_propagation.json, the residual stream as bars and, with
// gradients, as a table, and ratios with predictions. An unreadable file becomes a section with its
// error.
void add_signal_propagation(Json& sections, std::span<const ReportedRun> runs);

}  // namespace orrery::models
