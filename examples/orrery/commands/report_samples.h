// What trained models write, for a report.
#pragma once

#include <span>

#include "examples/orrery/commands/text_bounds.h"
#include "models/data/pairs.h"
#include "models/formats/json.h"
#include "models/reports/reported_run.h"

namespace orrery::program {

struct SampleSettings {
  int64_t samples = 2, tokens = 300, seed = 1;
  TextBounds bounds = {};
};

// Appends a section with texts of language models, or with translations of held-out sentences, by the best checkpoint
// of each run.  Nothing for other models.  What goes wrong is said there: a report is made of what there is.
void add_samples(models::Json& sections, std::span<const models::ReportedRun> runs, const SampleSettings& settings);

// The last pairs that a translator could have read, which no run learns: of validation data of its own, or the end of
// the data; none if the files are gone.
std::vector<models::TextPair> held_out_pairs(const models::TrainSettings& settings, int64_t most);

}  // namespace orrery::program
