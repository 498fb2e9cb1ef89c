#include "models/training/trainer.h"

#include <chrono>
#include <cmath>
#include <filesystem>

#include "engine/autograd.h"
#include "engine/files.h"
#include "engine/ops.h"
#include "engine/parallel.h"
#include "models/settings_file.h"
#include "models/training/checkpoint.h"
#include "models/training/evaluation.h"
#include "models/training/metrics.h"
#include "nn/loss.h"

namespace orrery::models {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check_settings(const TrainSettings& s) {
  check(!s.data.empty(),
        "train: no text to learn; give one with --data=FILE, for instance --data=examples/data/tinyshakespeare.txt");
  check(s.device == "cpu", "train: device '", s.device, "' is not available in this version; use --device=cpu");
  check(s.resume || latest_checkpoint(s.out).empty(), "train: ", s.out,
        " already holds a run; add --resume=yes to go on with it, or choose another --out");
}

Dtype dtype_named(const std::string& name) {
  return name == "f64" ? Dtype::f64 : name == "bf16" ? Dtype::bf16 : Dtype::f32;
}

// A resumed run goes on with the model that it began with, which today's settings and defaults must still describe.
void check_same_model(const TrainSettings& now, const CheckpointState& state) {
  const TrainSettings then = make_settings(state.settings);
  check(then.dtype == now.dtype, "train: the run in ", now.out, " has dtype=", then.dtype, ", not ", now.dtype,
        "; resume it with its own");
  GptSettings before = resolved(then).gpt, after = resolved(now).gpt;
  after.dropout = before.dropout;  // no part of the model
  const auto old_values = list_settings(before), new_values = list_settings(after);
  for (size_t i = 0; i < old_values.size(); ++i)
    check(old_values[i] == new_values[i], "train: the run in ", now.out, " has ", old_values[i].first, "=",
          old_values[i].second, ", not ", new_values[i].second,
          "; resume it with its own settings, as in --resume=yes --config=", now.out, "/settings.toml");
}

}  // namespace

Trainer::Trainer(const TrainSettings& settings) : settings_(settings) {
  TrainSettings& s = settings_;
  check_settings(s);
  if (s.threads > 0) set_thread_count(static_cast<int>(s.threads));
  const std::string resumed = s.resume ? latest_checkpoint(s.out) : "";
  check(!s.resume || !resumed.empty(), "train: there is no checkpoint to resume in ", s.out,
        "; leave --resume out to begin a run");
  tokenizer_ = resumed.empty() ? make_tokenizer(s.tokenizer, s.data) : restore_tokenizer(read_state(resumed).tokenizer);
  if (s.gpt.vocabulary == 0) s.gpt.vocabulary = tokenizer_->size();
  check(s.gpt.vocabulary >= tokenizer_->size(), "train: vocabulary ", s.gpt.vocabulary,
        " is too small for the tokenizer's ", tokenizer_->size(), " tokens; leave it out or raise it");
  text_ = std::make_unique<Text>(s.data, *tokenizer_, s.held_out);
  text_->check_context(s.gpt.context);
  if (!resumed.empty()) check_same_model(s, read_state(resumed));
  batches_ = std::make_unique<TextBatches>(text_->train(), s.batch, s.gpt.context, static_cast<uint64_t>(s.seed));
  model_ = std::make_unique<Gpt>(s.gpt);
  nn::initialize(*model_, static_cast<uint64_t>(s.seed));
  nn::convert(*model_, dtype_named(s.dtype));
  parameters_ = std::make_unique<nn::FlatParameters>(*model_);
  optimizer_ = nn::make_optimizer(s.optimizer, *parameters_);
  schedule_ = nn::make_schedule(s.schedule, {.rate = s.rate,
                                             .final_rate = s.final_rate,
                                             .warm_up = s.warm_up,
                                             .steps = s.steps,
                                             .warm_up_form = s.warm_up_form});
  LossWeights weights = s.losses;
  for (const Setting& one : settings_of(weights))
    if (const double weight = *std::get<double*>(one.value); weight > 0) loss_weights_[one.key] = weight;
  if (resumed.empty()) return;
  const CheckpointState state = read_state(resumed);
  load_weights(resumed, *model_);
  load_optimizer(resumed, *optimizer_);
  step_ = state.step, validation_loss_ = state.validation_loss;
  optimizer_->set_steps_done(step_);
}

Tensor Trainer::with_extra_losses(const Tensor& loss, const nn::Pass& pass, double share, ExtraLosses& sums) const {
  Tensor total = loss;
  for (const auto& [name, weight] : loss_weights_) {
    Tensor sum;
    for (const nn::Pass::Loss& one : pass.losses)
      if (one.name == name) sum = sum ? sum + one.value : one.value;
    check(bool(sum), "train: losses.", name, " has a weight, but nothing in this model has that loss");
    sums[name] += share * sum.item();
    total = total + scale(sum.to(loss.dtype()), share * weight);
  }
  return total;
}

double Trainer::update(double* gradient_norm, ExtraLosses& extra) {
  parameters_->forget_gradients();
  double loss = 0;
  const double part = 1.0 / static_cast<double>(settings_.accumulate);
  for (int64_t micro = 0; micro < settings_.accumulate; ++micro) {
    const Batch batch = batches_->at(step_, micro);
    nn::Pass pass;
    pass.training = true;
    for (const auto& [name, weight] : loss_weights_) pass.wanted_losses.insert(name);
    pass.key = RandomKey{static_cast<uint64_t>(settings_.seed), 0}
                   .derive("train")
                   .derive(static_cast<uint64_t>(step_))
                   .derive(static_cast<uint64_t>(micro));
    const Tensor share =
        scale(nn::cross_entropy((*model_)(batch.inputs, pass), batch.targets, settings_.label_smoothing), part);
    loss += share.item();
    with_extra_losses(share, pass, part, extra).backward();
  }
  const bool finite = optimizer_->step(schedule_->rate(step_), settings_.clip, gradient_norm);
  if (!finite || !std::isfinite(loss)) {
    const std::string last = latest_checkpoint(settings_.out);
    fail("train: the loss is not finite at step ", step_ + 1, " (loss ", loss, ", gradient norm ", *gradient_norm,
         "); ", last.empty() ? "no checkpoint had been written" : "the last good checkpoint is " + last,
         "; try a lower --rate or --clip=1");
  }
  nn::after_step(*model_);
  ++step_;
  return loss;
}

std::string Trainer::save() {
  CheckpointState state{.step = step_,
                        .tokenizer = tokenizer_->save(),
                        .settings = list_settings(resolved(settings_)),
                        .validation_loss = validation_loss_};
  const std::string path = write_checkpoint(settings_.out, state, *model_, *optimizer_);
  remove_old_checkpoints(settings_.out, settings_.keep);
  return path;
}

TrainingResult Trainer::run(const TrainingEvents& events) {
  const TrainSettings& s = settings_;
  std::error_code problem;
  std::filesystem::create_directories(s.out, problem);
  check(!problem, "train: cannot make the folder ", s.out, ": ", problem.message());
  write_settings_file(s.out + "/settings.toml", list_settings(s));
  Metrics metrics(s.out, step_);
  TrainingResult result;
  const auto start = Clock::now();
  const int64_t first = step_;
  double stepping = 0;  // seconds spent in updates
  const auto validate = [&] {
    validation_loss_ = evaluate(*model_, text_->held_out(), s.gpt.context);
    metrics.write(step_, {{"validation_loss", validation_loss_}});
    if (events.validation) events.validation(step_, validation_loss_);
  };
  if (s.profile) start_profile();
  bool stopped = false;
  while (step_ < s.steps && !stopped) {
    const auto began = Clock::now();
    const double rate = schedule_->rate(step_);
    double norm = 0;
    ExtraLosses extra;
    const double loss = update(&norm, extra), seconds = seconds_since(began);
    stepping += seconds;
    const double tokens = static_cast<double>(s.batch * s.accumulate * s.gpt.context);
    const int64_t memory = memory_use(Device::cpu).peak;
    std::vector<std::pair<std::string, double>> row = {{"loss", loss}, {"gradient_norm", norm}, {"rate", rate}};
    row.insert(row.end(), extra.begin(), extra.end());
    row.insert(row.end(), {{"milliseconds", seconds * 1e3}, {"tokens_per_second", tokens / seconds}});
    metrics.write(step_, row);
    if (events.step)
      events.step({step_, s.steps, loss, norm, rate, seconds * 1e3, tokens / seconds, memory,
                   stepping / static_cast<double>(step_ - first) * static_cast<double>(s.steps - step_)});
    stopped = events.stop && events.stop();
    const bool last = step_ == s.steps || stopped;
    if (last && s.profile) result.profile = stop_profile();
    if (last || (s.evaluate_every > 0 && step_ % s.evaluate_every == 0)) validate();
    if (last || (s.checkpoint_every > 0 && step_ % s.checkpoint_every == 0)) {
      result.checkpoint = save();
      if (events.checkpoint) events.checkpoint(result.checkpoint);
    }
  }
  result.steps_done = step_;
  result.validation_loss = validation_loss_;
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace orrery::models
