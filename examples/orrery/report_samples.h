// What trained models write, for a report.
#pragma once

#include <span>

#include "models/json.h"
#include "models/study/reported_run.h"

namespace orrery::program {

struct SampleSettings {
  int64_t samples = 2, tokens = 300, seed = 1;
};

// Appends a section with texts of language models, or with translations of held-out sentences, by the best checkpoint
// of each run.  Nothing for other models.  What goes wrong is said there: a report is made of what there is.
void add_samples(models::Json& sections, std::span<const models::ReportedRun> runs, const SampleSettings& settings);

}  // namespace orrery::program
