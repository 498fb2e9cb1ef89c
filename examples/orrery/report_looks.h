// What runs do inside while they read an example, for a report.
#pragma once

#include <span>
#include <string>

#include "examples/orrery/report_samples.h"
#include "examples/orrery/subject.h"

namespace orrery::program {

// Sections of the looks with these names, by the checkpoint of the lowest validation loss of each run.  Without an
// example language models read the beginning of their first sample; others are left out.
void add_looks(models::Json& sections, std::span<const models::ReportedRun> runs, const std::string& looks,
               const models::ExampleSettings& example, const SampleSettings& samples);

}  // namespace orrery::program
