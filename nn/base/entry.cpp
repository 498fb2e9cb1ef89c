#include "nn/base/entry.h"

#include <algorithm>

namespace orrery::nn {

void check_keys(const Spec& spec, const std::string& name, const std::map<std::string, const Defaults*>& family) {
  const auto has = [](const Defaults& settings, const std::string& key) {
    return std::any_of(settings.begin(), settings.end(), [&](const auto& setting) { return setting.first == key; });
  };
  const Defaults& own = *family.at(name);
  for (const Spec::Item& item : spec.items) {
    if (item.key.empty() || has(own, item.key)) continue;
    std::vector<std::string> others, keys;
    for (const auto& [other, settings] : family)
      if (has(*settings, item.key)) others.push_back(other);
    for (const auto& [key, value] : own) keys.push_back(key);
    check(others.empty(), spec, ": ", item.key, "=", item.value, " is an option of ", join(others), ", not of ", name,
          keys.empty() ? ", which takes none" : "; " + name + " takes " + join(keys));
  }
}

void fail_with_spec(const Spec& spec, const std::string& name, std::string_view message) {
  if (spec.items.empty() || message.starts_with(name + ":") || message.starts_with(print(spec))) fail(message);
  fail(spec, ": ", message);
}

}  // namespace orrery::nn
