#include "engine/watch.h"

#include <algorithm>
#include <utility>

#include "engine/autograd.h"
#include "engine/registry.h"

namespace orrery {
namespace {

thread_local Watch* active = nullptr;

std::string full_name(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : text(path, ".", name);
}

}  // namespace

Watch::Watch(std::vector<std::string> names, Observer observer)
    : names_(std::move(names)), observer_(std::move(observer)) {
  check(active == nullptr, "watch: another watch is active on this thread; end it first");
  active = this;
}
Watch::~Watch() { active = nullptr; }

void Watch::check_seen() const {
  const std::vector<std::string> candidates(seen_.begin(), seen_.end());
  for (const std::string& name : names_) {
    if (seen_.contains(name)) continue;
    const std::string near = nearest(name, candidates);
    fail("watch: '", name, "' never arose", near.empty() ? "" : text("; did you mean '", near, "'?"), " There were ",
         join(candidates));
  }
}

Tensor watch(std::string_view path, std::string_view name, const Tensor& x) {
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

bool is_watched(std::string_view path, std::string_view name) {
  if (!active) return false;
  const std::string full = full_name(path, name);
  active->seen_.insert(full);  // it could have been computed: a name to suggest
  return std::find(active->names_.begin(), active->names_.end(), full) != active->names_.end();
}

}  // namespace orrery
