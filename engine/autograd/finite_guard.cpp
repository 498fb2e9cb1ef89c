#include "engine/autograd/finite_guard.h"

#include <algorithm>

#include "engine/autograd/autograd.h"

namespace orrery {
namespace {

thread_local FiniteGuard* active_guard = nullptr;

std::string text_of(const OperationRecord& call) {
  return text(call.direction, " of ", call.operation, call.module.empty() ? "" : " in " + call.module, ": ",
              call.outputs[call.first_non_finite].name, " ", call.outputs[call.first_non_finite].stats);
}
std::string numbered(const char* name, size_t i, size_t count) {
  return count == 1 ? std::string(name) : text(name, " ", i);
}

// Returns true if minus infinity is the only non-finite result and an input holds it too.
bool is_mask(const TensorStats& output, const std::vector<OperationRecord::Value>& inputs) {
  return output.nan == 0 && output.plus_infinity == 0 &&
         std::any_of(inputs.begin(), inputs.end(), [](const auto& x) { return x.stats.minus_infinity > 0; });
}

}  // namespace

NonFiniteError::NonFiniteError(OperationRecord call)
    : Error(text_of(call)), record_(std::make_shared<const OperationRecord>(std::move(call))) {}

FiniteGuard::FiniteGuard(Names names, Observer observer)
    : names_(std::move(names)), observer_(std::move(observer)), before_(std::exchange(active_guard, this)) {}
FiniteGuard::~FiniteGuard() { active_guard = before_; }
FiniteGuard* FiniteGuard::active() { return active_guard; }

std::string FiniteGuard::name_of(const TensorImpl* leaf, const std::string& otherwise) const {
  const auto found = names_.find(leaf);
  return found == names_.end() ? otherwise : found->second;
}
std::string FiniteGuard::name_of_gradient(const Edge& of, const std::string& otherwise) const {
  return "gradient of " + (of.leaf ? name_of(of.leaf.get(), otherwise) : otherwise);
}

void FiniteGuard::check_values(const char* operation, const char* direction, const std::string& module,
                               const std::vector<Named>& inputs, const std::vector<Named>& outputs) {
  const bool finite = std::all_of(outputs.begin(), outputs.end(), [](const Named& x) { return all_finite(x.second); });
  if (finite && !observer_) return;
  OperationRecord call{.operation = operation, .direction = direction, .module = module, .inputs = {}, .outputs = {}};
  for (const auto& [name, x] : inputs) call.inputs.push_back({name, stats_of(x)});
  for (const auto& [name, x] : outputs) call.outputs.push_back({name, stats_of(x)});
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    call.first_non_finite = i;
    const TensorStats& stats = call.outputs[i].stats;
    if (stats.non_finite() > 0 && !is_mask(stats, call.inputs)) throw NonFiniteError(std::move(call));
  }
  call.first_non_finite = 0;
  if (observer_) observer_(call);
}

void FiniteGuard::check_forward(const char* operation, std::span<const Tensor* const> inputs,
                                std::span<const Tensor> outputs) {
  if (!is_recording() && (open_operations() > 1 || backward_passes_ > 0)) return;  // inside another operation, or a sum
  std::vector<Named> named_inputs, named_outputs;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const Tensor& x = *inputs[i])
      named_inputs.emplace_back(name_of(x.impl().get(), numbered("input", i, inputs.size())), x);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i]) named_outputs.emplace_back(numbered("output", i, outputs.size()), outputs[i]);
  check_values(operation, "forward", module_ ? *module_ : std::string(), named_inputs, named_outputs);
}

void FiniteGuard::remember(const Node& node) {
  if (module_) modules_[node.serial] = *module_;
}

void FiniteGuard::check_backward(const Node& node, std::span<const Edge> inputs, std::span<const Tensor> dy,
                                 std::span<const Tensor> dx) {
  std::vector<Named> named_inputs, named_outputs;
  for (size_t i = 0; i < dy.size(); ++i)
    if (dy[i]) named_inputs.emplace_back("gradient of " + numbered("output", i, dy.size()), dy[i]);
  for (size_t i = 0; i < dx.size(); ++i)
    if (dx[i] && inputs[i])
      named_outputs.emplace_back(name_of_gradient(inputs[i], numbered("input", i, dx.size())), dx[i]);
  const auto module = modules_.find(node.serial);
  check_values(node.name, "backward", module == modules_.end() ? std::string() : module->second, named_inputs,
               named_outputs);
}

void FiniteGuard::check_sum(const Edge& to, const Tensor& sum) {
  const std::string otherwise =
      to.node ? text(numbered("output", static_cast<size_t>(to.output), static_cast<size_t>(to.node->outputs)), " of ",
                     to.node->name)
              : std::string("a leaf");
  const auto module = to.node ? modules_.find(to.node->serial) : modules_.end();
  check_values("sum of gradients", "backward", module == modules_.end() ? std::string() : module->second, {},
               {{name_of_gradient(to, otherwise), sum}});
}

ModuleScope::ModuleScope(const std::string& path) : guard_(active_guard) {
  static const std::string root = root_module;
  if (guard_) before_ = std::exchange(guard_->module_, path.empty() ? &root : &path);
}
ModuleScope::~ModuleScope() {
  if (guard_) guard_->module_ = before_;
}

}  // namespace orrery
