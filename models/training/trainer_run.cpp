// A run: its steps, validations and checkpoints, and how it ends. trainer.cpp has the step.
#include <cmath>

#include "models/architectures/masks.h"
#include "models/settings/settings_file.h"
#include "models/training/not_finite.h"
#include "models/training/resume.h"
#include "models/training/signal_propagation.h"
#include "models/training/trainer.h"

namespace orrery::models {

// An unverified checkpoint has such weights and is renamed to .damaged. A resumed one stays and is
// only named: it may be a good one of another run with other settings.
void Trainer::fail_not_finite(const std::string& what) {
  if (!ranks_->is_first()) {  // all ranks end here; rank 0's error says more, and an earlier one would interrupt it
    char none = 0;
    ranks_->wait(ranks_->receive(0, &none, 1));
  }
  if (const std::string& resumed = folder_->resumed_unverified(), before = folder_->previous_checkpoint();
      !resumed.empty())
    fail("train: ", what, "; the run was resumed from ", resumed, ", whose weights lead to this; ",
         before.empty() ? "there is no checkpoint before it" : "the checkpoint before it is " + before,
         "; try a lower --learning_rate or --grad_clip=1");
  const std::string renamed = folder_->quarantine_unverified(), &last = folder_->last_good();
  fail("train: ", what, "; ",
       renamed.empty() ? "" : "the last checkpoint led to this and was renamed to " + renamed + "; ",
       !last.empty()     ? "the last good checkpoint is " + last
       : renamed.empty() ? "no checkpoint was written"
                         : "there is no good checkpoint",
       "; try a lower --learning_rate or --grad_clip=1");
}

// The step changed nothing, or its update was undone: the state is that before the step.
void Trainer::fail_found(const NonFiniteReport& report) {
  std::string what = message(report);
  if (has_others()) gather_run_state();
  if (!folder_) fail_not_finite(what);
  if (report.call.direction == "update") folder_->mark_verified();  // loss and gradients were finite
  try {
    write_replay(replay_folder(settings_.out), report, state(), *model_, *optimizer_);
    what += "; `orrery replay " + settings_.out + "` reproduces it";
  } catch (const Error& error) {
    what += orrery::text("; the step could not be saved for `orrery replay`: ", error.what());
  }
  fail_not_finite(what);
}

void Trainer::validate(RunReporter& reporter) {
  std::optional<Validation> found;
  try {
    std::optional<FiniteGuard> guard;
    if (settings_.nan_guard) guard.emplace(names_of_parameters());
    // Under a guard each rank validates everything, and finds what one process finds.
    found = task_->validate(*model_, {.stop = [&] { return !has_others() && reporter.should_stop(); },
                                      .ranks = settings_.nan_guard ? nullptr : ranks_});
  } catch (const NonFiniteError& problem) {
    fail_found({.step = step_, .validating = true, .call = problem.record()});
  }
  if (!found) return;
  if (!std::isfinite(found->loss)) fail_not_finite(orrery::text(validation_not_finite, step_));
  validation_loss_ = found->loss, metrics_ = found->metrics, validated_ = step_;
  reporter.validation(step_, *found);
}

void Trainer::remove_old_checkpoints(RunReporter& reporter) {
  reporter.warnings(folder_->remove_old(settings_.keep_checkpoints, settings_.keep_best));
}

CheckpointState Trainer::state() const {
  return {.step = step_,
          .tokenizer = task_->tokenizer(),
          .settings = list_settings(resolved(from_the_beginning(settings_))),
          .validation_loss = validation_loss_,
          .validated = validated_,
          .data_since = data_since_,
          .text = task_->fingerprint(),
          .parts = task_->trained_parts(),
          .earlier = earlier_,
          .extra_inputs = with_loaded_plugins(task_->extra_inputs()),
          .position = stream_states_.empty() ? 0 : stream_states_[0].length,
          .stream_states = stream_states_};
}

std::string Trainer::save(RunReporter& reporter) {
  if (has_others()) gather_run_state();
  if (!folder_) return "";
  std::string path;
  try {
    path = folder_->write(state(), *model_, settings_.save_optimizer ? optimizer_.get() : nullptr);
    if (has_others()) optimizer_->forget_others();
  } catch (const NonFiniteCheckpointError& problem) {
    fail_not_finite(orrery::text(weights_not_finite, step_, " (", problem.what(), ")"));
  }
  if (validated_ == step_) folder_->mark_verified();  // else the next step's loss verifies it
  remove_old_checkpoints(reporter);
  return path;
}

TrainingResult Trainer::run(const TrainingEvents& events) {
  const TrainSettings& s = settings_;
  const bool writes = ranks_->is_first();
  if (!folder_ && writes) folder_ = std::make_unique<RunFolder>(s.out);
  if (writes) folder_->compare_since(data_since_);
  struct Unlock {
    std::unique_ptr<RunFolder>& folder;
    ~Unlock() { folder.reset(); }
  } const unlock_at_end{folder_};
  const HostMemoryLimit planned;
  if (writes) write_settings_file(s.out + "/settings.toml", list_settings(from_the_beginning(s)), plugins_);
  RunReporter reporter(s.out, step_, events, writes);
  reporter.warnings(task_->warnings());
  reporter.warnings(rank_notes_);
  reporter.warnings(mask_notes(s.model_settings));
  if (writes) reporter.warnings(folder_->remove_partial());
  if (s.signal_propagation && step_ == 0 && writes) {
    std::vector<Tensor> batch = task_->batch(0, 0);
    for (Tensor& x : batch) x = x.to(device_);
    const SignalPropagation propagation = measure_signals(s, *task_, *model_, batch);
    write_propagation(propagation_file(s.out), propagation);
    reporter.propagation(propagation);
  }
  TrainingResult result;
  if (writes) result.checkpoint = folder_->last_good();
  const auto validation_due = [&] {
    return step_ > 0 && (step_ >= s.steps || (s.evaluate_every > 0 && step_ % s.evaluate_every == 0));
  };
  // It was stopped before its validation. With other data from this step on, the loss would be
  // recorded in a checkpoint of the former data.
  if (validation_due() && validated_ != step_ && data_since_ != step_) {
    validate(reporter);
    result.stopped = agree_to_stop(reporter.should_stop());
    if (validated_ == step_ && writes) folder_->record_validation(validation_loss_);
  }
  if (validated_ == step_ && writes) {
    folder_->mark_verified();
    remove_old_checkpoints(reporter);  // it was killed before this
  }
  const auto start = Clock::now();
  first_step_ = step_, step_seconds_ = 0, reported_ = start;
  // A GPU gets its next step before the host waits for the results of the last one.
  const size_t ahead = device_ == Device::cuda && !s.nan_guard ? 1 : 0;
  const auto report_until = [&](size_t left) {
    while (in_flight_.size() > left) report(reporter);
  };
  if (s.profile) start_profile();
  while (step_ < s.steps && !result.stopped) {
    if (logs_metrics_at(step_ + 1)) report_until(0);  // metrics wait for the device: exclude the step before
    try {
      queue_step();
    } catch (const NonFiniteError& problem) {
      fail_found({.step = step_ + 1, .call = problem.record()});
    }
    report_until(ahead);
    result.stopped = agree_to_stop(reporter.should_stop());
    const bool last = step_ == s.steps;
    const bool validation = !result.stopped && validation_due();
    bool checkpoint = result.stopped || last || (s.checkpoint_every > 0 && step_ % s.checkpoint_every == 0);
    if (validation || checkpoint) report_until(0);
    if ((last || result.stopped) && s.profile) result.profile = stop_profile();
    if (validation) {
      validate(reporter);
      checkpoint |= result.stopped = agree_to_stop(reporter.should_stop());
      const bool best = writes && settings_.keep_best && validated_ == step_ && folder_->is_best(validation_loss_);
      checkpoint |= decided_by_first(best);
    }
    if (checkpoint) {
      result.checkpoint = save(reporter);
      reporter.checkpoint(result.checkpoint);
    }
    if (validation || checkpoint) reported_ = Clock::now();  // excluded from the next step's time
  }
  reporter.finish(step_, result.checkpoint);
  result.steps_done = step_;
  result.validation_loss = validation_loss_;
  result.metrics = metrics_;
  result.seconds = seconds_between(start, Clock::now());
  return result;
}

}  // namespace orrery::models
