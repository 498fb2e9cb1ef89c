// A run: its steps, validations and checkpoints, and what ends it.  trainer.cpp has the step.
#include <cmath>

#include "models/settings_file.h"
#include "models/training/evaluation.h"
#include "models/training/trainer.h"

namespace orrery::models {
namespace {

void warn(const std::vector<std::string>& sentences, const TrainingEvents& events) {
  for (const std::string& sentence : sentences)
    if (events.warning) events.warning(sentence);
}

double seconds_between(auto from, auto to) { return std::chrono::duration<double>(to - from).count(); }

// The reason, and where what was learned is.
[[noreturn]] void fail_untold(const std::exception_ptr& reason, int64_t step, const std::string& checkpoint) {
  try {
    std::rethrow_exception(reason);
  } catch (const Error& error) {
    fail(error.what(), "; the run ended after step ", step, " and is saved in ", checkpoint,
         "; go on with --resume=yes");
  }
}

}  // namespace

// A checkpoint whose weights led there is no good one.
void Trainer::fail_not_finite(const std::string& what) {
  const std::string aside = folder_->set_aside_unproven(), &last = folder_->last_good();
  fail("train: ", what, "; ",
       aside.empty() ? "" : "the weights of the last checkpoint led there, it is set aside as " + aside + "; ",
       !last.empty()   ? "the last good checkpoint is " + last
       : aside.empty() ? "no checkpoint had been written"
                       : "there is no good checkpoint",
       "; try a lower --learning_rate or --grad_clip=1");
}

// A full disk or a dead terminal ends the run, but not before what was learned is saved: run() sees to that.
void Trainer::tell(const std::function<void()>& somebody) {
  if (untold_) return;
  try {
    somebody();
  } catch (...) {
    untold_ = std::current_exception();
  }
}

void Trainer::validate(Metrics& metrics, const TrainingEvents& events, const std::function<bool()>& stop) {
  const auto loss = evaluate(*model_, text_->validation(), settings_.gpt.context, 16, stop);
  if (!loss) return;
  if (!std::isfinite(*loss)) fail_not_finite(orrery::text("the validation loss is not finite since step ", step_));
  validation_loss_ = *loss, validated_ = step_;
  tell([&] {
    metrics.write(step_, {{"validation_loss", validation_loss_}});
    if (events.validation) events.validation(step_, validation_loss_);
  });
}

void Trainer::remove_old_checkpoints(const TrainingEvents& events) {
  tell([&] { warn(folder_->remove_old(settings_.keep_checkpoints), events); });
}

std::string Trainer::save(const TrainingEvents& events) {
  const CheckpointState state{.step = step_,
                              .tokenizer = tokenizer_->save(),
                              .settings = list_settings(resolved(from_the_beginning(settings_))),
                              .validation_loss = validation_loss_,
                              .text = text_->fingerprint()};
  std::string path;
  try {
    path = folder_->write(state, *model_, *optimizer_);
  } catch (const NotFinite& problem) {
    fail_not_finite(orrery::text("the weights are not finite since step ", step_, " (", problem.what(), ")"));
  }
  if (validated_ == step_) folder_->prove();  // else the next step's loss does it
  remove_old_checkpoints(events);
  return path;
}

TrainingResult Trainer::run(const TrainingEvents& events) {
  const TrainSettings& s = settings_;
  if (!folder_) folder_ = std::make_unique<RunFolder>(s.out);
  struct Unlock {
    std::unique_ptr<RunFolder>& folder;
    ~Unlock() { folder.reset(); }
  } const at_the_end{folder_};
  tell([&] { warn(folder_->remove_partial(), events); });
  write_settings_file(s.out + "/settings.toml", list_settings(from_the_beginning(s)));
  Metrics metrics(s.out, step_);
  TrainingResult result;
  const auto start = Clock::now();
  first_step_ = step_, stepping_ = 0, reported_ = start;
  // A GPU is given its next step before the host asks what came of the last one.
  const size_t ahead = device_ == Device::cuda ? 1 : 0;
  const auto report_until = [&](size_t left) {
    while (in_flight_.size() > left) report(metrics, events);
  };
  if (s.profile) start_profile();
  bool ends = false;
  const auto asked = [&] { return ends = ends || untold_ || (events.stop && events.stop()); };
  while (step_ < s.steps && !ends) {
    queue_step();
    report_until(ahead);
    asked();
    const bool last = step_ == s.steps;
    const bool validation = !ends && (last || (s.evaluate_every > 0 && step_ % s.evaluate_every == 0));
    bool checkpoint = ends || last || (s.checkpoint_every > 0 && step_ % s.checkpoint_every == 0);
    if (validation || checkpoint) report_until(0);
    if ((last || ends) && s.profile) result.profile = stop_profile();
    if (validation) {
      validate(metrics, events, asked);
      checkpoint = checkpoint || asked();
    }
    if (checkpoint) {
      result.checkpoint = save(events);
      if (events.checkpoint) tell([&] { events.checkpoint(result.checkpoint); });
    }
    if (validation || checkpoint) reported_ = Clock::now();  // they are no part of the next step's time
  }
  if (untold_) fail_untold(untold_, step_, result.checkpoint);
  result.stopped = ends;
  result.steps_done = step_;
  result.validation_loss = validation_loss_;
  result.seconds = seconds_between(start, Clock::now());
  return result;
}

}  // namespace orrery::models
