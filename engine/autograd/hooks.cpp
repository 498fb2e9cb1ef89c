#include "engine/autograd/hooks.h"

#include <algorithm>
#include <utility>

#include "engine/autograd/autograd.h"
#include "engine/base/registry.h"

namespace orrery {
namespace {

thread_local Hooks* active = nullptr;

std::string full_name(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : text(path, ".", name);
}

}  // namespace

Hooks::Hooks(std::vector<std::string> names, Observer observer)
    : names_(std::move(names)), observer_(std::move(observer)) {
  check(active == nullptr, "hooks: others are active on this thread; end them first");
  active = this;
}
Hooks::~Hooks() { active = nullptr; }

void Hooks::check_seen() const {
  const std::vector<std::string> candidates(seen_.begin(), seen_.end());
  for (const std::string& name : names_) {
    if (seen_.contains(name)) continue;
    const std::string near = nearest(name, candidates);
    fail("hooks: '", name, "' never arose", near.empty() ? "" : text("; did you mean '", near, "'?"), " There were ",
         join(candidates));
  }
}

Tensor hook(std::string_view path, std::string_view name, const Tensor& x) {
  if (!active) return x;
  const std::string full = full_name(path, name);
  active->seen_.insert(full);
  const std::vector<std::string>& names = active->names_;
  if (names.empty() || std::find(names.begin(), names.end(), full) != names.end()) {
    const NoGrad guard;  // looking leaves no trace in the graph
    active->observer_(full, x.detach());
  }
  return x;
}

bool is_hooked(std::string_view path, std::string_view name) {
  if (!active) return false;
  const std::string full = full_name(path, name);
  active->seen_.insert(full);  // it could have been computed: a name to suggest
  return std::find(active->names_.begin(), active->names_.end(), full) != active->names_.end();
}

}  // namespace orrery
