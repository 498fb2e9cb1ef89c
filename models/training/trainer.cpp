#include "models/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/autograd/autograd.h"
#include "engine/matmul/peak.h"
#include "engine/ops/ops.h"
#include "engine/tensor/flops.h"
#include "models/model.h"
#include "models/training/extra_losses.h"
#include "models/training/not_finite.h"
#include "models/training/parameter_rules.h"
#include "models/training/resume.h"
#include "models/training/run_plan.h"
#include "models/training/signal_propagation.h"

namespace orrery::models {
namespace {

std::vector<Tensor> tensors_of(std::span<const HostToDevice> buffers) {
  std::vector<Tensor> tensors;
  for (const HostToDevice& each : buffers) tensors.push_back(each.tensor());
  return tensors;
}

}  // namespace

Trainer::Trainer(const TrainSettings& settings, Ranks* ranks) : settings_(settings), ranks_(ranks ? ranks : &alone_) {
  TrainSettings& s = settings_;
  check_settings(s);
  logged_metrics_ = select_metrics(s.metrics);
  device_ = parse_device(s.device);
  use_machine(s);
  check_ranks();
  peak_flops_ = s.peak_tflops > 0 ? s.peak_tflops * 1e12 : peak_flops(device_, parse_dtype(s.dtype));
  std::string found;
  if (ranks_->is_first()) {
    folder_ = std::make_unique<RunFolder>(s.out);
    check_out(s);
    if (s.resume) found = folder_->checkpoint_to_resume(s.resume_from_previous);
  }
  const RunStart start(s, found, ranks_);
  const std::string& resumed = start.resumed;
  task_ = make_task(s, start, *ranks_);
  compare_ranks();
  if (resumed.empty()) earlier_ = start.trained_on;
  plan_ = plan_memory(s, *task_, *ranks_);
  check_duration(s.steps - (resumed.empty() ? 0 : start.state.step), plan_.seconds_of_step);
  model_ = make_model(s);
  nn::initialize(*model_, static_cast<uint64_t>(s.seed));
  nn::convert(*model_, parse_dtype(s.dtype));
  if (!start.checkpoint.empty() && ranks_->is_first())
    load_weights(start.checkpoint, *model_, task_->fresh_modules());
  nn::move(*model_, device_);
  apply_parameter_rules(s, *model_);
  parameters_ = std::make_unique<nn::FlatParameters>(*model_);
  optimizer_ = nn::make_optimizer(s.optimizer, *parameters_);
  schedule_ = schedule_of(s);
  for (const auto& [name, weight] : s.losses.by_name)
    if (weight > 0) loss_weights_[name] = weight;
  make_inputs();
  if (!resumed.empty()) resume(resumed, start.state);
  if (has_others() && !start.checkpoint.empty()) share_initial_state(!resumed.empty());
}

void Trainer::resume(const std::string& checkpoint, const CheckpointState& state) {
  const TrainSettings& s = settings_;
  if (has_optimizer(state) && ranks_->is_first()) load_optimizer(checkpoint, *optimizer_);
  if (!stream_states_.empty() && state.position > 0 && ranks_->is_first()) {
    stream_states_ = load_stream_states(checkpoint, device_);
    const int64_t rows = stream_states_.empty() ? 0 : stream_states_[0].entries.begin()->second.states.size(0);
    check(static_cast<int64_t>(stream_states_.size()) == s.gradient_accumulation_steps && rows == s.batch_size,
          "train: the run in ", s.out, " has ", stream_states_.size(), " micro-batches of ", rows,
          " streams, but these settings have ", s.gradient_accumulation_steps, " of ", s.batch_size,
          "; resume it with batch_size=", rows, " and gradient_accumulation_steps=", stream_states_.size());
  }
  step_ = state.step, validation_loss_ = state.validation_loss, validated_ = state.validated;
  data_since_ = state.data_since, earlier_ = state.earlier;
  if (has_new_data(s, state, *task_)) {
    data_since_ = step_, validation_loss_ = 0, validated_ = -1;
    earlier_ = training_data(state);
  }
  optimizer_->set_steps_done(step_);
}

void Trainer::make_inputs() {
  const TrainSettings& s = settings_;
  steps_ = std::make_unique<StepInputsByShape>(device_, s.cuda_graph);
  if (task_->stream_context() > 0)
    stream_states_.resize(static_cast<size_t>(s.gradient_accumulation_steps), empty_stream_state());
  numbers_ = std::make_unique<HostToDevice>(Tensor::zeros(Shape{s.gradient_accumulation_steps}, Dtype::i32, device_));
  fractions_ = std::make_unique<StepFractions>(s.gradient_accumulation_steps,
                                               s.dtype == "f64" ? Dtype::f64 : Dtype::f32, device_);
  losses_ = Tensor::zeros(Shape{1 + static_cast<int64_t>(loss_weights_.size())}, Dtype::f64, device_);
  losses_read_ = std::make_unique<DeviceToHost>(losses_);
  gradient_sum_ = std::make_unique<GradientSum>(parameters_->gradients(), s.gradient_parts,
                                                ranks_->share_of_mine(s.gradient_parts));
  if (!has_others()) return;
  owners_ = std::make_unique<Owners>(*ranks_, optimizer_->shares(ranks_->count()));
  parameters_->set_owners(owners_.get());
  optimizer_->forget_others();
}

Tensor Trainer::with_extra_losses(const Tensor& loss, const nn::ForwardPass& pass, double fraction) const {
  Tensor total = loss;
  int64_t index = 1;
  for (const auto& [name, weight] : loss_weights_) {
    const Tensor sum = extra_loss(pass, name);
    add_in_place(losses_[index++], scale(sum.detach().to(Dtype::f64), fraction));
    total = total + scale(sum.to(loss.dtype()), fraction * weight);
  }
  return total;
}

void Trainer::do_micro_batch(int64_t micro) {
  const std::vector<Tensor> batch =
      tensors_of(inputs_->batches[static_cast<size_t>(micro - micro_batches_of(ranks_->rank()).begin)]);
  nn::ForwardPass pass;
  pass.training = true;
  if (!stream_states_.empty()) pass.cache = &stream_states_[static_cast<size_t>(micro)];
  for (const auto& [name, weight] : loss_weights_) pass.requested_losses.insert(name);
  const RandomKey rng = RandomKey{static_cast<uint64_t>(settings_.seed), 0}.derive("train");
  pass.rng = DeviceRandomKey(rng, numbers_->tensor().data<int32_t>() + micro);
  const Tensor loss = task_->loss(*model_, batch, pass) * fractions_->of_targets(micro);
  add_in_place(losses_[0], loss.detach().to(Dtype::f64));
  with_extra_losses(loss, pass, fractions_->of_units(micro)).backward();
}

void Trainer::do_step() {
  do_passes();
  update();
}

void Trainer::do_passes() {
  const IndexRange parts = ranks_->share_of_mine(settings_.gradient_parts);
  zero_bytes(device_, losses_.mutable_raw(), losses_.bytes());
  for (int64_t part = parts.begin; part < parts.end; ++part) {
    const IndexRange micro_batches =
        share_of(settings_.gradient_accumulation_steps, settings_.gradient_parts, part);
    parameters_->zero_gradients();
    for (int64_t micro = micro_batches.begin; micro < micro_batches.end; ++micro) {
      do_micro_batch(micro);
      if (has_others()) take_losses(micro);
    }
    parameters_->write_pending_zeros();
    gradient_sum_->take(part);
  }
}

void Trainer::update() {
  if (has_others()) exchange_step();
  optimizer_->update(losses_[0]);
  nn::after_step(*model_);
}

void Trainer::send_batches() {
  std::vector<std::vector<Tensor>> batches;
  std::vector<BatchCounts> counts(static_cast<size_t>(settings_.gradient_accumulation_steps));
  const IndexRange mine = micro_batches_of(ranks_->rank());
  for (int64_t micro = mine.begin; micro < mine.end; ++micro) {
    batches.push_back(task_->batch(settings_.overfit_one_batch ? 0 : step_, micro));
    counts[static_cast<size_t>(micro)] = task_->counts(batches.back());
  }
  if (has_others()) share_counts(counts);
  fractions_->send(counts);
  inputs_ = &steps_->send(batches);
}

// Runs the first step without capture, so that one-time initialization is not part of a graph.
void Trainer::do_or_replay_step() {
  if (!inputs_->capturable || step_ == first_step_) return do_step();
  if (!inputs_->graph) {
    release_cached(device_);  // graphs have their own memory
    steps_->capture(*inputs_, [&] { do_step(); });
  }
  inputs_->graph->replay();
}

bool Trainer::logs_metrics_at(int64_t step) const {
  const int64_t every = settings_.metrics_every;
  return every > 0 && !logged_metrics_.empty() && (step == 1 || step % every == 0);
}

void Trainer::queue_step(const FiniteGuard::Observer& each) {
  const TrainSettings& s = settings_;
  if (has_others()) ranks_->set_stage(orrery::text("step ", step_ + 1));
  auto began = Clock::now();
  const double waited = ranks_->seconds_waited();
  auto* const numbers = numbers_->begin<int32_t>();
  send_batches();
  for (int64_t micro = 0; micro < s.gradient_accumulation_steps; ++micro)
    numbers[micro] = static_cast<int32_t>(step_ * s.gradient_accumulation_steps + micro);
  numbers_->send();
  const double learning_rate = schedule_->learning_rate(step_);
  optimizer_->send_request(learning_rate, s.grad_clip);
  MetricRow metrics;
  const bool logs_metrics = logs_metrics_at(step_ + 1);
  if (logs_metrics && ranks_->is_first()) {
    const std::vector<Tensor> batch = tensors_of(inputs_->batches[0]);
    const auto before = Clock::now();
    const nn::Cache* const stream_state = stream_states_.empty() ? nullptr : &stream_states_[0];
    collect_metrics(metrics, logged_metrics_, *task_, *model_, batch, stream_state);
    if (!std::exchange(metrics_checked_, true))
      absent_metrics_ = absent_metrics(s.metrics, [&](MetricRow& row, const ModelMetric* metric) {
        collect_metrics(row, {&metric, 1}, *task_, *model_, batch, stream_state);
        collect_metrics(row, {&metric, 1}, *parameters_);
      });
    began += Clock::now() - before;  // excluded from the step's time
  }
  const double flops = flops_counted();
  s.nan_guard ? do_guarded_step(each) : do_or_replay_step();
  if (flops_counted() > flops) inputs_->flops = ranks_->sum(flops_counted() - flops);
  ++step_;
  const size_t status = optimizer_->fetch_status(), losses = losses_read_->fetch();
  if (logs_metrics && has_others()) gather_for_metrics();
  if (logs_metrics && ranks_->is_first()) collect_metrics(metrics, logged_metrics_, *parameters_);
  in_flight_.push_back({step_, learning_rate, began, status, losses, fractions_->step(), inputs_->flops,
                        ranks_->seconds_waited() - waited, std::move(metrics)});
}

void Trainer::report(RunReporter& reporter) {
  const TrainSettings& s = settings_;
  const InFlight done = in_flight_.front();
  in_flight_.pop_front();
  const nn::Optimizer::StepStatus status = optimizer_->status(done.status);
  const double* losses = losses_read_->read<double>(done.losses);
  const bool has_targets = done.counts.targets > 0;  // without targets the loss has no mean
  const double loss = has_targets ? *losses : NAN, norm = status.gradient_norm;
  if (!status.done)
    fail_not_finite(orrery::text(loss_not_finite, done.step, " (loss ", loss, ", gradient norm ", norm, ")"));
  if (folder_ && folder_->mark_verified()) remove_old_checkpoints(reporter);
  reporter.warnings(std::exchange(absent_metrics_, {}));
  const auto now = Clock::now();
  const double seconds = seconds_between(std::max(done.began, reported_), now);
  reported_ = now;
  step_seconds_ += seconds;
  const auto units = static_cast<double>(done.counts.units);
  std::vector<std::pair<std::string, double>> row;
  if (has_targets) row.emplace_back("loss", loss);
  row.insert(row.end(), {{"gradient_norm", norm}, {"learning_rate", done.learning_rate}});
  for (const auto& [name, weight] : loss_weights_) row.emplace_back(name, *++losses);
  row.insert(row.end(), {{"step_ms", seconds * 1e3},
                         {task_->unit() + "_per_second", units / seconds},
                         {"multiply_adds", done.flops / 2}});
  const double mfu = peak_flops_ > 0 ? done.flops / seconds / peak_flops_ : NAN;
  if (peak_flops_ > 0) row.emplace_back("mfu", mfu);
  row.insert(row.end(), done.metrics.begin(), done.metrics.end());
  double exchange = 0;  // seconds of the rank that waits least, for the others wait for it, too
  if (has_others() && done.step == first_step_ + 2) {
    const std::vector<double> of_ranks = ranks_->share_numbers({&done.seconds_waited, 1});
    exchange = *std::min_element(of_ranks.begin(), of_ranks.end());
  }
  const double left =
      step_seconds_ / static_cast<double>(done.step - first_step_) * static_cast<double>(s.steps - done.step);
  reporter.step({done.step, s.steps, loss, norm, done.learning_rate, seconds * 1e3, task_->unit(), units / seconds,
                 memory_use(device_).peak, left, mfu, exchange},
                row);
}

}  // namespace orrery::models
