// Samples of trained models, for a report.
#pragma once

#include <span>

#include "examples/orrery/commands/text_bounds.h"
#include "models/data/sentence_pairs.h"
#include "models/formats/json.h"
#include "models/reports/reported_run.h"

namespace orrery::program {

struct SampleSettings {
  int64_t samples = 2, tokens = 300, seed = 1;
  TextBounds bounds = {};
};

// Appends a section of sampled texts or held-out translations from each run's best checkpoint.
// Skips other models. Errors appear in the section: the report is still written.
void add_samples(models::Json& sections, std::span<const models::ReportedRun> runs, const SampleSettings& settings);

// Returns the last `max_pairs` held-out pairs that a translator can read, from validation data or
// the end of the data; none if the files are missing.
std::vector<models::TextPair> held_out_pairs(const models::TrainSettings& settings, int64_t max_pairs);

}  // namespace orrery::program
