#include "engine/autograd/hooks.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "engine/autograd/autograd.h"
#include "engine/settings/registry.h"

namespace orrery {
namespace {

thread_local std::vector<Hooks*> active;

std::string full_name(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : text(path, ".", name);
}
bool matches_pattern(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_EXTMATCH) == 0;
}

}  // namespace

Hooks::Hooks(std::vector<std::string> patterns, Observer observer)
    : patterns_(std::move(patterns)), observer_(std::move(observer)) {
  active.push_back(this);
}
Hooks::Hooks(std::vector<std::string> patterns, Replace replacement)
    : patterns_(std::move(patterns)), replacement_(std::move(replacement)) {
  orrery::check(!patterns_.empty(), "hooks: a replacement needs the names of values; give names or a pattern");
  active.push_back(this);
}
Hooks::~Hooks() { std::erase(active, this); }

bool Hooks::matches(const std::string& name) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

void Hooks::check_all_matched() const {
  const std::vector<std::string> candidates(names_.begin(), names_.end());
  for (const std::string& pattern : patterns_) {
    if (std::any_of(candidates.begin(), candidates.end(),
                    [&](const std::string& name) { return matches_pattern(pattern, name); }))
      continue;
    const std::string near = nearest(pattern, candidates);
    fail("hooks: no value matches '", pattern, "'",
         near.empty() ? "; available: " + join(candidates) : "; did you mean '" + near + "'?");
  }
}

Tensor Hooks::apply(const std::string& name, const Tensor& value) {
  names_.insert(name);
  if (!patterns_.empty() && !matches(name)) return value;
  if (observer_) {
    const NoGrad guard;  // an observer leaves no trace in the graph
    observer_(name, value.detach());
    return value;
  }
  const Tensor other = replacement_.with(name, value);
  if (!other) return value;
  orrery::check(other.shape() == value.shape() && other.dtype() == value.dtype() && other.device() == value.device(),
                "hooks: the replacement of ", name, " is ", orrery::name(other.dtype()), " ", other.shape(), " on ",
                other.device(), "; it must be ", orrery::name(value.dtype()), " ", value.shape(), " on ",
                value.device());
  return other;
}

Tensor hook(std::string_view path, std::string_view name, const Tensor& x) {
  if (active.empty()) return x;
  const std::string full = full_name(path, name);
  Tensor value = x;
  for (Hooks* hooks : active) value = hooks->apply(full, value);
  return value;
}

bool is_hooked(std::string_view path, std::string_view name) {
  if (active.empty()) return false;
  const std::string full = full_name(path, name);
  bool any = false;
  for (Hooks* hooks : active) {
    hooks->names_.insert(full);  // a name to suggest, because it could be computed
    any |= hooks->matches(full);
  }
  return any;
}

bool may_be_hooked(std::string_view path, std::string_view name) {
  const auto match = [&](const Hooks* hooks) { return hooks->matches(full_name(path, name)); };
  return std::any_of(active.begin(), active.end(), match);
}

bool has_replacement(std::string_view path, std::string_view name) {
  const auto replaces = [&](const Hooks* hooks) {
    return hooks->replacement_.with && hooks->matches(full_name(path, name));
  };
  return std::any_of(active.begin(), active.end(), replaces);
}

}  // namespace orrery
