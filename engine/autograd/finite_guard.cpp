#include "engine/autograd/finite_guard.h"

#include <algorithm>

#include "engine/autograd/autograd.h"

namespace orrery {
namespace {

thread_local FiniteGuard* active_guard = nullptr;

std::string text_of(const LookedAt& call) {
  return text(call.direction, " of ", call.operation, call.module.empty() ? "" : " in " + call.module, ": ",
              call.made[call.found].name, " ", call.made[call.found].facts);
}
std::string numbered(const char* name, size_t i, size_t count) {
  return count == 1 ? std::string(name) : text(name, " ", i);
}

// Returns true if minus infinity is the only non-finite result and an input holds it too.
bool masks(const NumberFacts& made, const std::vector<LookedAt::Value>& read) {
  return made.nan == 0 && made.plus_infinity == 0 &&
         std::any_of(read.begin(), read.end(), [](const auto& x) { return x.facts.minus_infinity > 0; });
}

}  // namespace

NotFiniteFound::NotFiniteFound(LookedAt what)
    : Error(text_of(what)), what_(std::make_shared<const LookedAt>(std::move(what))) {}

FiniteGuard::FiniteGuard(Names names, Observer observer)
    : names_(std::move(names)), observer_(std::move(observer)), before_(std::exchange(active_guard, this)) {}
FiniteGuard::~FiniteGuard() { active_guard = before_; }
FiniteGuard* FiniteGuard::active() { return active_guard; }

std::string FiniteGuard::name_of(const TensorBody* leaf, const std::string& otherwise) const {
  const auto found = names_.find(leaf);
  return found == names_.end() ? otherwise : found->second;
}
std::string FiniteGuard::name_of_gradient(const Edge& of, const std::string& otherwise) const {
  return "gradient of " + (of.leaf ? name_of(of.leaf.get(), otherwise) : otherwise);
}

void FiniteGuard::look(const char* operation, const char* direction, const std::string& module,
                       const std::vector<Named>& read, const std::vector<Named>& made) {
  const bool finite = std::all_of(made.begin(), made.end(), [](const Named& x) { return all_finite(x.second); });
  if (finite && !observer_) return;
  LookedAt call{.operation = operation, .direction = direction, .module = module, .read = {}, .made = {}};
  for (const auto& [name, x] : read) call.read.push_back({name, facts_of(x)});
  for (const auto& [name, x] : made) call.made.push_back({name, facts_of(x)});
  for (size_t i = 0; i < call.made.size(); ++i) {
    call.found = i;
    const NumberFacts& facts = call.made[i].facts;
    if (facts.not_finite() > 0 && !masks(facts, call.read)) throw NotFiniteFound(std::move(call));
  }
  call.found = 0;
  if (observer_) observer_(call);
}

void FiniteGuard::look_at_forward(const char* operation, std::span<const Tensor* const> inputs,
                                  std::span<const Tensor> outputs) {
  if (!recording() && (open_operations() > 1 || backward_passes_ > 0)) return;  // inside another operation, or a sum
  std::vector<Named> read, made;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const Tensor& x = *inputs[i])
      read.emplace_back(name_of(x.body().get(), numbered("input", i, inputs.size())), x);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i]) made.emplace_back(numbered("output", i, outputs.size()), outputs[i]);
  look(operation, "forward", module_ ? *module_ : std::string(), read, made);
}

void FiniteGuard::remember(const Node& call) {
  if (module_) modules_[call.serial] = *module_;
}

void FiniteGuard::look_at_backward(const Node& call, std::span<const Edge> inputs, std::span<const Tensor> read_from,
                                   std::span<const Tensor> made_of) {
  std::vector<Named> read, made;
  for (size_t i = 0; i < read_from.size(); ++i)
    if (read_from[i]) read.emplace_back("gradient of " + numbered("output", i, read_from.size()), read_from[i]);
  for (size_t i = 0; i < made_of.size(); ++i)
    if (made_of[i] && inputs[i])
      made.emplace_back(name_of_gradient(inputs[i], numbered("input", i, made_of.size())), made_of[i]);
  const auto module = modules_.find(call.serial);
  look(call.name, "backward", module == modules_.end() ? std::string() : module->second, read, made);
}

void FiniteGuard::look_at_sum(const Edge& to, const Tensor& sum) {
  const std::string otherwise =
      to.node ? text(numbered("output", static_cast<size_t>(to.output), static_cast<size_t>(to.node->outputs)), " of ",
                     to.node->name)
              : std::string("a leaf");
  const auto module = to.node ? modules_.find(to.node->serial) : modules_.end();
  look("sum of gradients", "backward", module == modules_.end() ? std::string() : module->second, {},
       {{name_of_gradient(to, otherwise), sum}});
}

InModule::InModule(const std::string& path) : guard_(active_guard) {
  static const std::string root = root_module;
  if (guard_) before_ = std::exchange(guard_->module_, path.empty() ? &root : &path);
}
InModule::~InModule() {
  if (guard_) guard_->module_ = before_;
}

}  // namespace orrery
