// Samples of trained models, for a report.
#pragma once

#include <span>

#include "examples/orrery/commands/text_bounds.h"
#include "models/formats/json.h"
#include "models/reports/reported_run.h"

namespace orrery::program {

struct SampleSettings {
  int64_t samples = 2;   // texts of each run; 4 times as many sentences of a translator
  int64_t tokens = 300;  // of each text
  int64_t seed = 1;      // of the first text; the next ones add 1 each
  TextBounds bounds = {};
};

// Appends a section of sampled texts or held-out translations from each run's best checkpoint.
// Skips models that generate no text. Errors appear in the section: the report is still written.
void add_samples(models::Json& sections, std::span<const models::ReportedRun> runs, const SampleSettings& settings);

}  // namespace orrery::program
