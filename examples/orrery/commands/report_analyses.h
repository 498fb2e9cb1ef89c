// Analyses of runs on an example, as report sections.
#pragma once

#include <span>
#include <string>

#include "examples/orrery/commands/example_argument.h"
#include "examples/orrery/commands/report_samples.h"
#include "examples/orrery/page/source_files.h"

namespace orrery::program {

// Appends the named analyses ("attention, heads" or "all"; "none" appends nothing), computed by
// each run's checkpoint of lowest validation loss. Models that cannot read the example get a
// held-out one, the same for all runs if they have one in common; without data, language models get
// the start of their first sample and other models are skipped. Throws if no run can read the example.
void add_analyses(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& analyses,
                  const ExampleArgument& example, const SampleSettings& samples, const SourceLinks& links);

}  // namespace orrery::program
