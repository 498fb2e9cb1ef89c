// A guarded training step: for --nan_guard=yes, and for its replay.
#include <algorithm>

#include "models/training/trainer.h"

namespace orrery::models {
namespace {

// A copy of everything that an update changes, to restore it.
class BeforeUpdate {
 public:
  BeforeUpdate(const nn::FlatParameters& parameters, const nn::Optimizer& optimizer, nn::Module& model)
      : parameters_(parameters), optimizer_(optimizer), buffers_(nn::buffers_of(model)) {
    for (const Tensor& x : places()) copies_.push_back(x.clone());
  }
  void restore() const {
    const std::vector<Tensor> all = places();
    for (size_t i = 0; i < all.size(); ++i) all[i].copy_from(copies_[i]);
  }
  const Tensor& values() const { return copies_[0]; }

 private:
  std::vector<Tensor> places() const {
    std::vector<Tensor> all = {parameters_.values()};
    if (parameters_.rounded()) all.push_back(parameters_.rounded());
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

// Throws NotFiniteFound for the first tensor of `made` that is not finite.
void look(LookedAt call, const std::vector<std::pair<std::string, Tensor>>& made) {
  for (const auto& [name, x] : made) call.made.push_back({name, facts_of(x)});
  for (call.found = 0; call.found < made.size(); ++call.found)
    if (call.made[call.found].facts.not_finite() > 0) throw NotFiniteFound(std::move(call));
}

void look_at_update(const std::string& name, const nn::FlatParameters& parameters, const nn::Optimizer& optimizer,
                    nn::Module& model, const BeforeUpdate& before) {
  const nn::Optimizer::NamedMoments moments = optimizer.moments();
  const bool finite = all_finite(parameters.values()) && (!parameters.rounded() || all_finite(parameters.rounded())) &&
                      std::all_of(moments.begin(), moments.end(), [](const auto& m) { return all_finite(m.second); });
  for (const nn::FlatParameters::Segment& segment : parameters.segments()) {
    if (finite) break;
    std::vector<std::pair<std::string, Tensor>> made;
    made.emplace_back(segment.path, parameters.part(parameters.values(), segment));
    if (parameters.rounded())
      made.emplace_back(segment.path + ", rounded", parameters.part(parameters.rounded(), segment));
    for (const auto& [moment, x] : moments)
      if (moment.ends_with("." + segment.path)) made.emplace_back(moment, x);
    look({.operation = name,
          .direction = "update",
          .module = module_of(segment.path),
          .read = {{segment.path + ", before", facts_of(parameters.part(before.values(), segment))},
                   {"gradient of " + segment.path, facts_of(parameters.part(parameters.gradients(), segment))}},
          .made = {}},
         made);
  }
  for (const auto& [path, buffer] : nn::buffers_of(model))
    if (!all_finite(*buffer))
      look({.operation = "after_step", .direction = "update", .module = module_of(path), .read = {}, .made = {}},
           {{path, *buffer}});
}

}  // namespace

FiniteGuard::Names Trainer::names_of_parameters() const {
  FiniteGuard::Names names;
  for (const nn::FlatParameters::Segment& segment : parameters_->segments())
    names[segment.parameter->value.body().get()] = segment.path;
  return names;
}

void Trainer::do_guarded_step(const FiniteGuard::Observer& each) {
  const std::vector<nn::Cache> carried = carried_;
  const BeforeUpdate before(*parameters_, *optimizer_, *model_);
  try {
    const FiniteGuard guard(names_of_parameters(), each);
    do_step();
    look_at_update(settings_.optimizer.name, *parameters_, *optimizer_, *model_, before);
  } catch (const NotFiniteFound&) {
    before.restore();
    carried_ = carried;
    optimizer_->set_steps_done(step_);
    throw;
  }
}

std::optional<Finding> Trainer::replay(bool validating, const FiniteGuard::Observer& each) {
  settings_.nan_guard = true;
  const int64_t step = validating ? step_ : step_ + 1;
  try {
    if (validating) {
      const FiniteGuard guard(names_of_parameters(), each);
      task_->validate(*model_, {});
    } else {
      queue_step(each);
    }
  } catch (const NotFiniteFound& found) {
    return Finding{.step = step, .validating = validating, .call = found.what_was_found()};
  }
  return std::nullopt;
}

}  // namespace orrery::models
