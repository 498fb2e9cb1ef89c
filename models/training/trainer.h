// Training: batches, steps, validation, checkpoints, metrics. Nothing here prints.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/autograd/finite_guard.h"
#include "engine/autograd/profile.h"
#include "engine/distributed/gradient_sum.h"
#include "engine/distributed/owners.h"
#include "engine/tensor/staging.h"
#include "models/metrics/base/model_metric.h"
#include "models/tasks/base/task.h"
#include "models/training/memory_plan.h"
#include "models/training/replay.h"
#include "models/training/run_folder.h"
#include "models/training/run_reporter.h"
#include "models/training/settings.h"
#include "models/training/step_inputs.h"
#include "nn/optimizers/base/optimizer.h"
#include "nn/schedules/base/schedule.h"

namespace orrery::models {

struct TrainingResult {
  int64_t steps_done = 0;
  bool stopped = false;                                 // by events.stop
  double validation_loss = 0;                           // nats, of the last validation; 0 if there was none
  std::vector<std::pair<std::string, double>> metrics;  // of the last validation, without its loss
  std::string checkpoint;                               // the last one written
  Profile profile;                                      // filled if settings.profile
  double seconds = 0;
};

class Trainer {
 public:
  // Reads the data, makes or resumes the model. Throws before training if the data are unreadable
  // or too short, settings conflict, the model does not fit into memory, or the folder holds a run
  // (unless resume) or another run is active there.
  // With `ranks`, which must outlive the trainer, the run is that of all ranks: each computes its share of a step's
  // parts, and rank 0 alone uses the run's folder. All ranks call the same functions with the same settings.
  explicit Trainer(const TrainSettings& settings, Ranks* ranks = nullptr);

  // Sets the plug-in files that the settings require; settings.toml lists them.
  void name_plugins(std::vector<std::string> paths) { plugins_ = std::move(paths); }
  // Trains the steps that are left, with validations and checkpoints. Throws Error at a non-finite
  // loss, or if a file cannot be written; the last good checkpoint stays.
  TrainingResult run(const TrainingEvents& events = {});

  // Runs the next step or a validation under a guard that passes every operation to `each`. Returns
  // the first non-finite value, if any. Writes nothing.
  std::optional<NonFiniteReport> replay(bool validating, const FiniteGuard::Observer& each = {});

  nn::Module& model() { return *model_; }
  const TrainSettings& settings() const { return settings_; }
  int64_t steps_done() const { return step_; }
  const Task& task() const { return *task_; }
  const MemoryPlan& memory_plan() const { return plan_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct InFlight {  // a queued step; its results are not read yet
    int64_t step;    // from 1
    double learning_rate;
    Clock::time_point began;
    size_t status, losses;  // tickets of the transfers to the host
    BatchCounts counts;     // sums over all micro-batches
    double flops, seconds_waited;  // for other ranks
    MetricRow metrics;
  };
  static double seconds_between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }
  void make_inputs();
  void resume(const std::string& checkpoint, const CheckpointState& state);
  void send_batches();  // and points inputs_ at them
  void do_or_replay_step();
  bool logs_metrics_at(int64_t step) const;
  void queue_step(const FiniteGuard::Observer& each = {});  // `each`: called per operation, with nan_guard
  // Restores the state before it throws NonFiniteError.
  void do_guarded_step(const FiniteGuard::Observer& each);
  FiniteGuard::Names names_of_parameters() const;
  void do_step();    // a step's work on the device, equal each time: it can be captured
  void do_passes();  // its first half: adds up the gradients of this rank's parts
  void update();     // its second half
  void do_micro_batch(int64_t micro);  // adds its gradients to those of its part
  // With other ranks (trainer_ranks.cpp); all call these together.
  bool has_others() const { return ranks_->count() > 1; }
  IndexRange micro_batches_of(int64_t rank) const;
  void check_ranks() const;                // throws unless several ranks can train with these settings
  void compare_ranks();                    // throws if they have other data, files or builds
  void share_initial_state(bool resumed);  // which rank 0 has loaded
  void share_counts(std::vector<BatchCounts>& counts) const;
  void take_losses(int64_t micro);  // of this micro-batch, out of losses_
  void exchange_step();             // sums of all parts to their owners, losses and step records to all
  void share_step_records();
  bool agree_to_stop(bool stops) const;  // true if one stops
  bool decided_by_first(bool decision) const;
  void gather_for_metrics();
  // Throws the NonFiniteError of `work` that one process would throw: that of the lowest rank.
  void throw_first(const std::function<void()>& work) const;
  void gather_run_state();  // what a checkpoint needs, on rank 0
  void move_stream_states(bool to_first);  // to rank 0, or from it
  Tensor with_extra_losses(const Tensor& loss, const nn::ForwardPass& pass, double fraction) const;
  // Waits for the oldest step and reports its results. Throws if the device skipped it.
  void report(RunReporter& reporter);
  void validate(RunReporter& reporter);
  CheckpointState state() const;
  std::string save(RunReporter& reporter);
  void remove_old_checkpoints(RunReporter& reporter);
  [[noreturn]] void fail_not_finite(const std::string& what);
  [[noreturn]] void fail_found(const NonFiniteReport& report);

  TrainSettings settings_;
  std::vector<std::string> plugins_;
  Ranks alone_;
  Ranks* ranks_;
  std::vector<std::string> rank_notes_;  // warnings about their hosts
  std::unique_ptr<RunFolder> folder_;  // locked from the constructor to the end of the run; of rank 0
  Device device_ = Device::cpu;
  std::unique_ptr<Task> task_;
  MemoryPlan plan_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::FlatParameters> parameters_;
  std::unique_ptr<GradientSum> gradient_sum_;  // over the parts of a step
  std::unique_ptr<Owners> owners_;             // of elements, with other ranks
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::unique_ptr<nn::Schedule> schedule_;
  std::map<std::string, double> loss_weights_;      // above 0, by name
  std::vector<const ModelMetric*> logged_metrics_;  // logged every metrics_every steps
  std::vector<std::string> absent_metrics_;         // messages to report, from the first logged row
  bool metrics_checked_ = false;
  double peak_flops_ = 0;                           // FLOPS of the device; 0: unknown
  std::unique_ptr<StepInputsByShape> steps_;
  StepInputs* inputs_ = nullptr;              // of this step
  std::unique_ptr<HostToDevice> numbers_;     // micro-batch numbers: the last component of the rng keys
  std::unique_ptr<StepFractions> fractions_;  // of this step
  std::vector<nn::Cache> stream_states_;      // stream state of each micro-batch; empty: no streams
  Tensor losses_;                             // means over the step: the task's loss, then those of loss_weights_
  std::vector<double> micro_losses_;          // with other ranks: losses_ of each micro-batch
  std::unique_ptr<DeviceToHost> losses_read_;
  std::deque<InFlight> in_flight_;
  Clock::time_point reported_;  // time of the last report
  double step_seconds_ = 0;     // seconds of the reported steps
  int64_t first_step_ = 0;      // steps done before this run
  int64_t step_ = 0;            // steps queued so far
  double validation_loss_ = 0;
  std::vector<std::pair<std::string, double>> metrics_;
  int64_t validated_ = -1;             // step of validation_loss_
  int64_t data_since_ = 0;             // step at which allow_new_text changed the data; 0: never
  std::vector<TrainingData> earlier_;  // CheckpointState::earlier
};

}  // namespace orrery::models
