#include "models/training/short_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "models/tasks/base/task.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {

ShortRun short_run(const NamedModel& named, const std::string& data, int64_t steps,
                   const ShortRunOptions& options) {
  constexpr int64_t batch_size = 4;
  const uint64_t seed = options.seed;
  const TaskClass& task_class = tasks().at(named.model_class.task);
  const AnySettings task_settings = task_class.settings;
  setting_of<std::string>(task_settings, "data") = data;
  AnySettings settings = named.settings;
  const std::unique_ptr<Task> task = task_class.make(task_settings, settings, {.batch_size = batch_size, .seed = seed});
  const std::unique_ptr<nn::Module> made = named.model_class.make(settings);
  nn::Module& model = *made;
  nn::initialize(model, seed);
  nn::FlatParameters parameters(model);
  const auto optimizer = nn::make_optimizer(options.optimizer, parameters);
  const auto schedule = nn::make_schedule(
      options.schedule, {.learning_rate = 1e-3, .min_learning_rate = 1e-4, .warmup_steps = 19, .steps = steps});

  const auto start = std::chrono::steady_clock::now();
  ShortRun run;
  for (int64_t step = 0; step < steps; ++step) {
    nn::ForwardPass pass;
    pass.training = true, pass.rng = RandomKey{seed, 1}.derive(static_cast<uint64_t>(step));
    parameters.zero_gradients();
    const Tensor loss = task->loss(model, task->batch(step, 0), pass);
    run.losses.push_back(loss.item());
    if (!std::isfinite(run.losses.back())) break;
    loss.backward();
    optimizer->step(schedule->learning_rate(step), 1);
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (run.losses.empty()) return run;
  const auto last = std::min<std::ptrdiff_t>(20, static_cast<std::ptrdiff_t>(run.losses.size()));
  run.first_loss = run.losses.front();
  run.last_loss = std::accumulate(run.losses.end() - last, run.losses.end(), 0.0) / static_cast<double>(last);
  return run;
}

}  // namespace orrery::models
