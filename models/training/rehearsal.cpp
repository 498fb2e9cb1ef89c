#include "models/training/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "engine/autograd/autograd.h"
#include "engine/autograd/finite_guard.h"
#include "engine/ops/ops.h"
#include "engine/system/pool.h"
#include "engine/tensor/flops.h"
#include "engine/types/sizes.h"
#include "models/metrics/base/model_metric.h"
#include "models/model.h"
#include "models/training/extra_losses.h"
#include "models/training/signal_propagation.h"
#include "nn/masks/base/mask.h"

namespace orrery::models {
namespace {

// Without the tables of masks, which the plan counts: a batch of any size has one.
double peak_of(const auto& work) {
  const int64_t before = memory_use(Device::cpu).allocated, tables = nn::kept_mask_bytes();
  reset_peak(Device::cpu);
  work();
  const int64_t made = nn::kept_mask_bytes() - tables;
  return static_cast<double>(std::max<int64_t>(0, memory_use(Device::cpu).peak - before - made));
}

// Returns the shortest of a few times: the first call also pays for one-time initialization, such as
// a mask's tables.
Cost cost_of(const auto& work) {
  constexpr double enough = 0.02, long_time = 1;
  constexpr int max_repeats = 3;
  double shortest = std::numeric_limits<double>::infinity(), all = 0, flops = 0;
  for (int i = 0; i < max_repeats && (all < enough || (i == 1 && all < long_time)); ++i) {
    const double before = flops_counted();
    const auto began = std::chrono::steady_clock::now();
    work();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    shortest = std::min(shortest, seconds), all += seconds, flops = flops_counted() - before;
  }
  return {shortest, flops};
}

std::unique_ptr<nn::Module> make_untouched(const TrainSettings& settings) {
  const nn::ParameterCount untouched(max_elements);
  return make_model(settings);
}

}  // namespace

Rehearsal::Rehearsal(const TrainSettings& settings, const Task& task)
    : s_(settings), task_(task), model_(make_untouched(settings)) {
  for (const nn::NamedParameter& p : nn::parameters_of(*model_)) {
    const double max_value = p.parameter->max_value;  // spans at their maximum
    nn::fill(p.parameter->value, nn::constant(std::isfinite(max_value) ? max_value : 0.01), {});
  }
  nn::convert(*model_, parse_dtype(s_.dtype));
  parameters_ = std::make_unique<nn::FlatParameters>(*model_);
  optimizer_ = nn::make_optimizer(s_.optimizer, *parameters_);
}

int64_t Rehearsal::optimizer_state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, moment] : optimizer_->moments()) bytes += Pool::block_size(moment.bytes());
  return bytes;
}

Peaks Rehearsal::run(const BatchSizes& sizes) {
  const std::vector<Tensor> batch = task_.dummy_batch(sizes.training, sizes.tokens);
  const nn::Cache stream_state = stream_state_of(sizes.training);
  Peaks peaks;
  for (const auto& [path, entry] : stream_state.entries)
    peaks.stream_state += static_cast<double>(entry.states.bytes());
  peaks.stream_state *= static_cast<double>(s_.gradient_accumulation_steps);
  peaks.step = peak_of([&] {
    const Cost cost = cost_of([&] {
      parameters_->zero_gradients();
      train_step(batch, stream_state);
    });
    peaks.seconds = cost.seconds, peaks.flops = cost.flops;
    // Add a second micro-batch to the gradients of the first.
    if (s_.gradient_accumulation_steps > 1) train_step(batch, stream_state);
    optimizer_->step(0);
    if (s_.nan_guard) train_guarded(batch, stream_state);
  });
  if (s_.metrics_every > 0) peaks.metrics = peak_of([&] { log_metrics(batch, stream_state); });
  if (s_.signal_propagation && !s_.resume)
    peaks.signal_propagation = peak_of([&] { measure_signals(s_, task_, *model_, batch); });
  const bool alike = sizes.validation == sizes.training;
  const std::vector<Tensor> held_out = alike ? batch : task_.dummy_batch(sizes.validation, sizes.tokens);
  const nn::Cache validation_state = alike ? stream_state : stream_state_of(sizes.validation);
  double of_validation = 0;
  for (const auto& [path, entry] : validation_state.entries) of_validation += static_cast<double>(entry.states.bytes());
  peaks.validation = of_validation + peak_of([&] {
                       const NoGrad guard;
                       nn::Cache before = validation_state;
                       nn::ForwardPass pass;
                       if (task_.stream_context() > 0) pass.cache = &before;
                       static_cast<void>(loss(held_out, pass));
                     });
  return peaks;
}

Cost Rehearsal::cost_of_update() {
  return cost_of([&] { parameters_->zero_gradients(), optimizer_->step(0); });
}

Tensor Rehearsal::loss(std::span<const Tensor> batch, nn::ForwardPass& pass) {
  Tensor total = task_.loss(*model_, batch, pass);
  for (const nn::ForwardPass::Loss& extra : pass.losses) total = total + sum(extra.value).to(total.dtype());
  return total;
}

void Rehearsal::train_step(std::span<const Tensor> batch, const nn::Cache& stream_state) {
  nn::Cache before = stream_state;
  nn::ForwardPass pass;
  if (task_.stream_context() > 0) pass.cache = &before;
  pass.training = true;
  for (const auto& [name, weight] : s_.losses.by_name)
    if (weight > 0) pass.requested_losses.insert(name);
  const Tensor total = loss(batch, pass);
  for (const std::string& name : pass.requested_losses) static_cast<void>(extra_loss(pass, name));
  total.backward();
}

// The guard holds the tensors that it checks a little longer.
void Rehearsal::train_guarded(std::span<const Tensor> batch, const nn::Cache& stream_state) {
  try {
    const FiniteGuard guard;
    train_step(batch, stream_state);
    optimizer_->step(0);
  } catch (const NonFiniteError&) {  // of dummy weights; the run need not have it
  }
}

void Rehearsal::log_metrics(std::span<const Tensor> batch, const nn::Cache& stream_state) {
  const std::vector<const ModelMetric*> wanted = select_metrics(s_.metrics);
  MetricRow row;
  collect_metrics(row, wanted, task_, *model_, batch, task_.stream_context() > 0 ? &stream_state : nullptr);
  collect_metrics(row, wanted, *parameters_);
}

// Returns the stream state after as many tokens as it can hold.
nn::Cache Rehearsal::stream_state_of(int64_t streams) {
  const int64_t tokens_at_once = std::clamp<int64_t>(task_.sequence_length(), 64, 512);
  const NoGrad guard;
  nn::Cache cache = empty_stream_state();
  while (cache.length < task_.stream_context()) {
    nn::ForwardPass pass;
    pass.cache = &cache;
    static_cast<void>(
        loss(task_.dummy_batch(streams, std::min(tokens_at_once, task_.stream_context() - cache.length)), pass));
  }
  return cache;
}

}  // namespace orrery::models
