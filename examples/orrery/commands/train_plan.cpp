#include "examples/orrery/commands/train_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "engine/system/parallel.h"
#include "engine/types/format.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/messages.h"
#include "examples/orrery/terminal/process_io.h"
#include "examples/orrery/terminal/progress.h"
#include "models/formats/shown_text.h"

namespace orrery::program {
namespace {

int64_t units_per_step(const PlannedRun& run) {
  return run.task.units_per_batch() * run.settings.gradient_accumulation_steps;
}
int64_t steps_per_epoch(const PlannedRun& run) {
  return (run.task.units_per_epoch() + units_per_step(run) - 1) / units_per_step(run);
}

PlannedRun planned(const models::RunPlan& plan) { return {plan.settings, *plan.task, plan.memory, plan.steps}; }

int64_t count_parameters_of(const models::RunPlan& plan) {
  int64_t count = 0;
  for (const auto& [part, elements] : plan.parameters) count += elements;
  return count;
}

std::string parameters_line(const models::RunPlan& plan) {
  if (plan.parameters.empty()) return "parameters: too many to count";
  std::string parts;
  for (const auto& [part, elements] : plan.parameters)
    parts += (parts.empty() ? "" : ", ") + part + " " + with_commas(elements);
  return text("parameters: ", with_commas(count_parameters_of(plan)), " (", parts, ")");
}

std::string flops_line(const models::MemoryPlan& plan) {
  if (plan.flops_of_step == 0) return "";
  return text("work: about ", scientific(plan.flops_of_step), " FLOPs per step\n");
}

// Returns a key of JSON for a name: "feed-forward" becomes feed_forward.
std::string snake_case(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == ' '; }, '_');
  return name;
}

Json parameters_json(const models::RunPlan& plan) {
  if (plan.parameters.empty()) return nullptr;
  Json all = {{"total", count_parameters_of(plan)}};
  for (const auto& [part, elements] : plan.parameters) all[snake_case(part)] = elements;
  return all;
}

Json data_json(const PlannedRun& run) {
  const bool generated = run.task.units_per_epoch() == 0;
  return {{"kind", run.task.kind()},
          {"unit", run.task.unit()},
          {"training_units", generated ? Json() : Json(run.task.units_per_epoch())},
          {"validation_units", run.task.validation_units()},
          {"units_per_step", units_per_step(run)},
          {"steps_per_epoch", generated ? Json() : Json(steps_per_epoch(run))}};
}

Json memory_json(const models::MemoryPlan& plan) {
  Json kinds = Json::object();
  for (const auto& [kind, bytes] : plan.kinds()) kinds[snake_case(kind)] = bytes;
  return {{"total_bytes", plan.total()}, {"free_bytes", plan.free}, {"bytes", kinds}};
}

Json time_json(const PlannedRun& run) {
  const double step = run.memory.seconds_of_step;
  return {{"steps", run.steps},
          {"seconds_per_step", step == 0 ? Json() : Json(step)},
          {"seconds", step == 0 ? Json() : Json(step * static_cast<double>(run.steps))}};
}

// Unknown values are null.
Json plan_json(const models::RunPlan& plan) {
  const PlannedRun run = planned(plan);
  return {{"model", plan.settings.model},
          {"can_start", plan.problem.empty()},
          {"problem", plan.problem.empty() ? Json() : Json(plan.problem)},
          {"parameters", parameters_json(plan)},
          {"data", data_json(run)},
          {"memory", memory_json(plan.memory)},
          {"time", time_json(run)},
          {"flops_per_step", plan.memory.flops_of_step == 0 ? Json() : Json(plan.memory.flops_of_step)},
          {"threads", thread_count()}};
}

}  // namespace

std::string data_text(const models::Task& task) {
  return text(task.kind(), ": ",
              task.units_per_epoch() > 0 ? with_commas(task.units_per_epoch()) + " training " : "generated training ",
              task.unit(), ", ", with_commas(task.validation_units()), " for validation");
}

std::string memory_line(const models::MemoryPlan& plan) {
  const auto megabytes = [](int64_t bytes) { return with_commas((bytes + 500'000) / 1'000'000); };
  std::string kinds;
  for (const auto& [kind, bytes] : plan.kinds()) kinds += (kinds.empty() ? "" : ", ") + kind + " " + megabytes(bytes);
  return text("memory: about ", megabytes(plan.total()), " MB (", kinds, "), ", megabytes(plan.free), " MB are free");
}

std::string epoch_line(const PlannedRun& run) {
  const models::Task& task = run.task;
  const int64_t step = units_per_step(run);
  if (task.units_per_epoch() == 0)
    return text("epoch: none; data are generated, ", with_commas(step), " ", task.unit(), " per step");
  return text("epoch: ", with_commas(task.units_per_epoch()), " ", task.unit(), ", ",
              pluralize(steps_per_epoch(run), "step"), " of ", with_commas(step));
}

// The time of a step is known before training only on the CPU.
std::string time_line(const PlannedRun& run) {
  const double step = run.memory.seconds_of_step;
  if (step == 0) return "";
  const std::string milliseconds = step < 0.1 ? significant(step * 1e3, 2) : with_commas(std::llround(step * 1e3));
  return text("time: about ", milliseconds, " ms per step, ", time_text(step * static_cast<double>(run.steps)), " for ",
              pluralize(run.steps, "step"), "\n");
}

void note_long_warmup(const models::TrainSettings& s) {
  if (s.warmup_steps < s.steps) return;
  note(text("the warm-up takes ", pluralize(s.warmup_steps, "step"), " and the run ", with_commas(s.steps),
            ", so the learning rate ends at ", scientific(models::schedule_of(s)->learning_rate(s.steps - 1)),
            ", below its peak of ", scientific(s.learning_rate), "; use a lower --warmup_steps, or 0 for none"));
}

int print_plan(const models::RunPlan& plan, JsonOutput& json) {
  const PlannedRun run = planned(plan);
  note_long_warmup(plan.settings);
  if (!json)
    std::cout << "model: " << models::for_terminal(plan.settings.model) << "; " << pluralize(thread_count(), "thread")
              << "\n"
              << broken_line(parameters_line(plan), STDOUT_FILENO) << data_text(run.task) << "\n"
              << epoch_line(run) << "\n"
              << broken_line(memory_line(plan.memory), STDOUT_FILENO)
              << time_line(run) << flops_line(plan.memory) << std::flush;
  if (json) json.print(plan_json(plan));
  if (plan.problem.empty()) return 0;
  print_error(plan.problem);
  return 1;
}

}  // namespace orrery::program
