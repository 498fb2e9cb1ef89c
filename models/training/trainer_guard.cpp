// A guarded training step: for --nan_guard=yes, and for its replay.
#include <algorithm>

#include "models/training/trainer.h"

namespace orrery::models {
namespace {

// A copy of everything that an update changes, to restore it.
class StepBackup {
 public:
  StepBackup(const nn::FlatParameters& parameters, const nn::Optimizer& optimizer, nn::Module& model)
      : parameters_(parameters), optimizer_(optimizer), buffers_(nn::buffers_of(model)) {
    for (const Tensor& x : state_tensors()) copies_.push_back(x.clone());
  }
  void restore() const {
    const std::vector<Tensor> all = state_tensors();
    for (size_t i = 0; i < all.size(); ++i) all[i].copy_from(copies_[i]);
  }
  const Tensor& values() const { return copies_[0]; }

 private:
  std::vector<Tensor> state_tensors() const {
    std::vector<Tensor> all = {parameters_.values()};
    if (parameters_.bf16_copy()) all.push_back(parameters_.bf16_copy());
    for (const auto& [name, moment] : optimizer_.moments()) all.push_back(moment);
    for (const auto& [path, buffer] : buffers_) all.push_back(*buffer);
    return all;
  }
  const nn::FlatParameters& parameters_;
  const nn::Optimizer& optimizer_;
  const std::vector<std::pair<std::string, Tensor*>> buffers_;
  std::vector<Tensor> copies_;
};

std::string module_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? root_module : path.substr(0, dot);
}

// Throws NonFiniteError for the first tensor of `outputs` that is not finite.
void check_outputs(OperationRecord call, const std::vector<std::pair<std::string, Tensor>>& outputs) {
  for (const auto& [name, x] : outputs) call.outputs.push_back({name, stats_of(x)});
  for (call.first_non_finite = 0; call.first_non_finite < outputs.size(); ++call.first_non_finite)
    if (call.outputs[call.first_non_finite].stats.non_finite() > 0) throw NonFiniteError(std::move(call));
}

bool has_finite_state(const nn::FlatParameters& parameters, const nn::Optimizer& optimizer) {
  const nn::Optimizer::NamedMoments moments = optimizer.moments();
  return all_finite(parameters.values()) && (!parameters.bf16_copy() || all_finite(parameters.bf16_copy())) &&
         std::all_of(moments.begin(), moments.end(), [](const auto& m) { return all_finite(m.second); });
}

// finite: has_finite_state, of all ranks
void check_update(bool finite, const std::string& name, const nn::FlatParameters& parameters,
                  const nn::Optimizer& optimizer, nn::Module& model, const StepBackup& before) {
  const nn::Optimizer::NamedMoments moments = optimizer.moments();
  for (const nn::FlatParameters::Segment& segment : parameters.segments()) {
    if (finite) break;
    std::vector<std::pair<std::string, Tensor>> outputs;
    outputs.emplace_back(segment.path, parameters.segment_view(parameters.values(), segment));
    if (parameters.bf16_copy())
      outputs.emplace_back(segment.path + ", rounded", parameters.segment_view(parameters.bf16_copy(), segment));
    for (const auto& [moment, x] : moments)
      if (moment.ends_with("." + segment.path)) outputs.emplace_back(moment, x);
    check_outputs({.operation = name,
                   .direction = "update",
                   .module = module_of(segment.path),
                   .inputs = {{segment.path + ", before", stats_of(parameters.segment_view(before.values(), segment))},
                              {"gradient of " + segment.path,
                               stats_of(parameters.segment_view(parameters.gradients(), segment))}},
                   .outputs = {}},
                  outputs);
  }
  for (const auto& [path, buffer] : nn::buffers_of(model))
    if (!all_finite(*buffer))
      check_outputs(
          {.operation = "after_step", .direction = "update", .module = module_of(path), .inputs = {}, .outputs = {}},
          {{path, *buffer}});
}

}  // namespace

FiniteGuard::Names Trainer::names_of_parameters() const {
  FiniteGuard::Names names;
  for (const nn::FlatParameters::Segment& segment : parameters_->segments())
    names[segment.parameter->value.impl().get()] = segment.path;
  return names;
}

void Trainer::do_guarded_step(const FiniteGuard::Observer& each) {
  const std::vector<nn::Cache> stream_states = stream_states_;
  const StepBackup before(*parameters_, *optimizer_, *model_);
  try {
    const FiniteGuard guard(names_of_parameters(), each);
    throw_first([&] { do_passes(); });
    update();
    const bool finite = ranks_->sum(has_finite_state(*parameters_, *optimizer_) ? 0 : 1) == 0;
    if (has_others() && !finite) {
      gather_for_metrics();
      if (parameters_->bf16_copy()) owners_->gather(before.values());
      optimizer_->move_state(true);
    }
    throw_first([&] { check_update(finite, settings_.optimizer.name, *parameters_, *optimizer_, *model_, before); });
  } catch (const NonFiniteError&) {
    before.restore();
    stream_states_ = stream_states;
    optimizer_->set_steps_done(step_);
    throw;
  }
}

std::optional<NonFiniteReport> Trainer::replay(bool validating, const FiniteGuard::Observer& each) {
  settings_.nan_guard = true;
  const int64_t step = validating ? step_ : step_ + 1;
  try {
    if (validating) {
      const FiniteGuard guard(names_of_parameters(), each);
      task_->validate(*model_, {});
    } else {
      queue_step(each);
    }
  } catch (const NonFiniteError& found) {
    return NonFiniteReport{.step = step, .validating = validating, .call = found.record()};
  }
  return std::nullopt;
}

}  // namespace orrery::models
