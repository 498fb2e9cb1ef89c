// Training: batches, steps, validation, checkpoints, metrics.  Nothing here prints.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/autograd/finite_guard.h"
#include "engine/autograd/profile.h"
#include "engine/tensor/staging.h"
#include "models/figures/base/figure.h"
#include "models/tasks/base/task.h"
#include "models/training/audience.h"
#include "models/training/memory_plan.h"
#include "models/training/replay.h"
#include "models/training/run_folder.h"
#include "models/training/settings.h"
#include "models/training/step_inputs.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {

struct TrainingResult {
  int64_t steps_done = 0;
  bool stopped = false;  // because events.stop said so
  double validation_loss = 0;
  std::vector<std::pair<std::string, double>> figures;  // of the last validation, beside its loss
  std::string checkpoint;                               // the last one written
  Profile profile;                                      // filled if settings.profile
  double seconds = 0;
};

class Trainer {
 public:
  // Reads the data, makes or resumes the model.  Errors before any training: data that cannot be read or is too short,
  // settings that do not fit each other, a folder that already holds a run (unless resume) or in which another run is
  // at work, a model that does not fit into memory.
  explicit Trainer(const TrainSettings& settings);

  // Files without which the settings are none: settings.toml is to name them.
  void name_plugins(std::vector<std::string> paths) { plugins_ = std::move(paths); }
  TrainingResult run(const TrainingEvents& events = {});

  // The next step, or a validation, under a guard, which tells `each` of every operation: what was not finite, if
  // anything was.  Nothing is written.
  std::optional<Finding> replay(bool validating, const FiniteGuard::Observer& each = {});

  nn::Module& model() { return *model_; }
  const TrainSettings& settings() const { return settings_; }
  int64_t steps_done() const { return step_; }
  const Task& task() const { return *task_; }
  const MemoryPlan& memory_plan() const { return plan_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct InFlight {  // a step that was queued; its outcome is not known yet
    int64_t step;    // from 1
    double learning_rate;
    Clock::time_point began;
    size_t outcome, losses;  // tickets
    BatchCounts counts;      // of all micro-batches
    double flops;
    FigureRow figures;
  };
  static double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }
  void make_inputs();
  void resume(const std::string& checkpoint, const CheckpointState& state);
  void send_batches();  // from then on `inputs_` are theirs
  void do_or_replay_step();
  bool tells_figures_of(int64_t step) const;
  void queue_step(const FiniteGuard::Observer& each = {});  // with nan_guard: of operations
  // What throws NotFiniteFound has changed nothing.
  void do_guarded_step(const FiniteGuard::Observer& each);
  FiniteGuard::Names names_of_parameters() const;
  void do_step();  // what the device does in a step, the same each time: it can be recorded
  Tensor with_extra_losses(const Tensor& loss, const nn::Pass& pass, double fraction) const;
  // Waits for the oldest step and tells its numbers.  An Error if the device skipped it.
  void report(Audience& audience);
  void validate(Audience& audience);
  CheckpointState state() const;
  std::string save(Audience& audience);
  void remove_old_checkpoints(Audience& audience);
  [[noreturn]] void fail_not_finite(const std::string& what);
  [[noreturn]] void fail_found(const Finding& finding);

  TrainSettings settings_;
  std::vector<std::string> plugins_;
  std::unique_ptr<RunFolder> folder_;  // from the constructor to the end of the run: nobody else writes there
  Device device_ = Device::cpu;
  std::unique_ptr<Task> task_;
  MemoryPlan plan_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::FlatParameters> parameters_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<nn::Schedule> schedule_;
  std::map<std::string, double> loss_weights_;  // above 0, by name
  std::vector<const Figure*> wanted_figures_;   // that the log gets every so many steps
  double peak_flops_ = 0;                       // a second, of the device; 0: unknown
  std::unique_ptr<StepInputsByShape> steps_;
  StepInputs* inputs_ = nullptr;              // of this step
  std::unique_ptr<HostToDevice> numbers_;     // of the micro-batches: what the random keys end with
  std::unique_ptr<StepFractions> fractions_;  // of this step
  std::vector<nn::Cache> carried_;            // of each micro-batch, if it is of streams
  Tensor losses_;                             // means over the step: the task's, then loss_weights_'s
  std::unique_ptr<DeviceToHost> losses_read_;
  std::deque<InFlight> in_flight_;
  Clock::time_point reported_;  // the last step
  double stepping_ = 0;         // seconds of the steps that were reported
  int64_t first_step_ = 0;      // of this run
  int64_t step_ = 0;            // queued
  double validation_loss_ = 0;
  std::vector<std::pair<std::string, double>> figures_;
  int64_t validated_ = -1;  // the step after which it was computed
};

}  // namespace orrery::models
