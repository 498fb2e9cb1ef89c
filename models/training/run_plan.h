// The start of a run: its checks, the checkpoint that it begins with, its task; and its plan, for
// which nothing is written.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/distributed/ranks.h"
#include "models/tasks/base/task.h"
#include "models/training/checkpoint.h"
#include "models/training/memory_plan.h"
#include "models/training/settings.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {

std::unique_ptr<nn::Schedule> schedule_of(const TrainSettings& settings);

void check_settings(const TrainSettings& settings);  // throws if settings conflict
// Throws if the settings' folder holds a run or other files that a new run would replace.
void check_out(const TrainSettings& settings);
// Sets the threads and the matrix product kernels of the whole process.
void use_machine(const TrainSettings& settings);

// The checkpoint that a run resumes or, with init_from, begins with.
struct RunStart {
  std::string resumed;          // empty: the run is new
  std::string checkpoint = {};  // `resumed`, or init_from's checkpoint; empty: initial weights
  CheckpointState state = {};
  std::vector<TrainingData> trained_on = {};  // data that the checkpoint's weights were trained on

  // Throws if a run cannot be resumed from the checkpoint. Of several ranks, rank 0 reads the checkpoint.
  RunStart(const TrainSettings& settings, std::string resumed_checkpoint, Ranks* ranks = nullptr);
};

// Reads the data and sets the model's settings that depend on them, such as its vocabulary. Throws
// if the run does not fit to the data or to the checkpoint.
std::unique_ptr<Task> make_task(TrainSettings& settings, const RunStart& start, const Ranks& ranks = {});

struct RunPlan {
  TrainSettings settings;  // with those that the data determine
  std::unique_ptr<Task> task = {};
  int64_t steps = 0;         // left to do
  MemoryPlan memory = {};    // as far as it was made, if the run does not fit
  std::string problem = {};  // why the run would be refused; else empty
  // Elements by part (embedding, attention, feed-forward, norm, head, other); empty: too many.
  std::vector<std::pair<std::string, int64_t>> parameters = {};
};
// Plans the run and writes nothing. Throws as the trainer does, except for a run that is too large
// or too long or whose folder cannot be used, which is a problem of the plan.
RunPlan plan_run(const TrainSettings& settings);

}  // namespace orrery::models
