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
#include "models/figures/base/figure.h"
#include "models/model.h"
#include "models/training/extra_losses.h"
#include "models/training/probe.h"

namespace orrery::models {
namespace {

double peak_of(const auto& work) {
  const int64_t before = memory_use(Device::cpu).held;
  reset_peak(Device::cpu);
  work();
  return static_cast<double>(memory_use(Device::cpu).peak - before);
}

// Returns the shortest of a few times: the first call also pays for one-time initialization.
Cost cost_of(const auto& work) {
  constexpr double enough = 0.02;
  constexpr int most_times = 3;
  double shortest = std::numeric_limits<double>::infinity(), all = 0, flops = 0;
  for (int i = 0; i < most_times && all < enough; ++i) {
    const double before = flops_counted();
    const auto began = std::chrono::steady_clock::now();
    work();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    shortest = std::min(shortest, seconds), all += seconds, flops = flops_counted() - before;
  }
  return {shortest, flops};
}

std::unique_ptr<nn::Module> make_untouched(const TrainSettings& settings) {
  const nn::ParameterCount untouched(largest_size);
  return make_model(settings);
}

}  // namespace

Rehearsal::Rehearsal(const TrainSettings& settings, const Task& task)
    : s_(settings), task_(task), model_(make_untouched(settings)) {
  for (const nn::NamedParameter& p : nn::parameters_of(*model_)) {
    const double highest = p.parameter->highest;  // spans at their maximum
    nn::fill(p.parameter->value, nn::constant(std::isfinite(highest) ? highest : 0.01), {});
  }
  nn::convert(*model_, parse_dtype(s_.dtype));
  parameters_ = std::make_unique<nn::FlatParameters>(*model_);
  optimizer_ = nn::make_optimizer(s_.optimizer, *parameters_);
}

int64_t Rehearsal::bytes_of_moments() const {
  int64_t bytes = 0;
  for (const auto& [name, moment] : optimizer_->moments()) bytes += Pool::block_size(moment.bytes());
  return bytes;
}

Peaks Rehearsal::run(const Sample& sample) {
  const std::vector<Tensor> batch = task_.sample(sample.training, sample.tokens);
  const nn::Cache carried = carried_by(sample.training);
  Peaks peaks;
  for (const auto& [path, entry] : carried.entries) peaks.carried += static_cast<double>(entry.states.bytes());
  peaks.carried *= static_cast<double>(s_.gradient_accumulation_steps);
  peaks.step = peak_of([&] {
    const Cost cost = cost_of([&] {
      parameters_->zero_gradients();
      learn(batch, carried);
    });
    peaks.seconds = cost.seconds, peaks.flops = cost.flops;
    // Add a second micro-batch to the gradients of the first.
    if (s_.gradient_accumulation_steps > 1) learn(batch, carried);
    optimizer_->step(0);
    if (s_.nan_guard) learn_guarded(batch, carried);
  });
  if (s_.figures_every > 0) peaks.figures = peak_of([&] { show_figures(batch, carried); });
  if (s_.probe && !s_.resume) peaks.probe = peak_of([&] { probe_signals(s_, task_, *model_, batch); });
  const bool alike = sample.validation == sample.training;
  const std::vector<Tensor> held_out = alike ? batch : task_.sample(sample.validation, sample.tokens);
  const nn::Cache remembered = alike ? carried : carried_by(sample.validation);
  double of_validation = 0;
  for (const auto& [path, entry] : remembered.entries) of_validation += static_cast<double>(entry.states.bytes());
  peaks.validation = of_validation + peak_of([&] {
                       const NoGrad guard;
                       nn::Cache before = remembered;
                       nn::Pass pass;
                       if (task_.carried() > 0) pass.cache = &before;
                       static_cast<void>(loss(held_out, pass));
                     });
  return peaks;
}

Cost Rehearsal::cost_of_update() {
  return cost_of([&] { parameters_->zero_gradients(), optimizer_->step(0); });
}

Tensor Rehearsal::loss(std::span<const Tensor> batch, nn::Pass& pass) {
  Tensor total = task_.loss(*model_, batch, pass);
  for (const nn::Pass::Loss& extra : pass.losses) total = total + sum(extra.value).to(total.dtype());
  return total;
}

void Rehearsal::learn(std::span<const Tensor> batch, const nn::Cache& carried) {
  nn::Cache before = carried;
  nn::Pass pass;
  if (task_.carried() > 0) pass.cache = &before;
  pass.training = true;
  for (const auto& [name, weight] : s_.losses.by_name)
    if (weight > 0) pass.wanted_losses.insert(name);
  const Tensor total = loss(batch, pass);
  for (const std::string& name : pass.wanted_losses) static_cast<void>(extra_loss(pass, name));
  total.backward();
}

// The guard holds the tensors that it checks a little longer.
void Rehearsal::learn_guarded(std::span<const Tensor> batch, const nn::Cache& carried) {
  try {
    const FiniteGuard guard;
    learn(batch, carried);
    optimizer_->step(0);
  } catch (const NotFiniteFound&) {  // dummy weights: not a finding about the run
  }
}

void Rehearsal::show_figures(std::span<const Tensor> batch, const nn::Cache& carried) {
  const std::vector<const Figure*> wanted = figures_called(s_.figures);
  FigureRow row;
  look(row, wanted, task_, *model_, batch, task_.carried() > 0 ? &carried : nullptr);
  look(row, wanted, *parameters_);
}

// Returns the stream state after as many tokens as it can hold.
nn::Cache Rehearsal::carried_by(int64_t streams) {
  const int64_t tokens_at_once = std::clamp<int64_t>(task_.length(), 64, 512);
  const NoGrad guard;
  nn::Cache cache = stream_cache();
  while (cache.tokens < task_.carried()) {
    nn::Pass pass;
    pass.cache = &cache;
    static_cast<void>(loss(task_.sample(streams, std::min(tokens_at_once, task_.carried() - cache.tokens)), pass));
  }
  return cache;
}

}  // namespace orrery::models
