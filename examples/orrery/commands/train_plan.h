// The plan of a run: memory, time, data and parameters, as lines of text and as JSON.
#pragma once

#include <string>

#include "examples/orrery/terminal/json_output.h"
#include "models/training/run_plan.h"

namespace orrery::program {

// The run that the lines before a training and --plan=yes describe.
struct PlannedRun {
  const models::TrainSettings& settings;
  const models::Task& task;
  const models::MemoryPlan& memory;
  int64_t steps;  // left to do
};

std::string data_text(const models::Task& task);  // text: 1,000 training tokens, 100 for validation
std::string memory_line(const models::MemoryPlan& plan);
std::string epoch_line(const PlannedRun& run);
std::string time_line(const PlannedRun& run);  // empty: unknown before training, on a GPU
// Prints a note if the warm-up is not shorter than the run, so that the peak is never reached.
void note_long_warmup(const models::TrainSettings& settings);

// Prints the plan. Returns the exit code: 1, with a message, if the run would be refused.
int print_plan(const models::RunPlan& plan, JsonOutput& json);

}  // namespace orrery::program
