// What runs do inside while they read an example, for a report.
#pragma once

#include <span>
#include <string>

#include "examples/orrery/commands/report_samples.h"
#include "examples/orrery/commands/subject.h"

namespace orrery::program {

// Sections of the looks with these names, by the checkpoint of the lowest validation loss of each run.  Those
// that do not read an example of the kind that is given have one of their own: language models the beginning of their
// first sample, translators a held-out pair; models of images are left out.  An Error if no run reads what is given.
void add_looks(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& looks,
               const models::ExampleSettings& example, const SampleSettings& samples);

}  // namespace orrery::program
