// Families whose members a setting can name: attention = "softmax(span=...)".
#pragma once

#include <string>

#include "nn/base/entry.h"
#include "nn/base/gradient_case.h"

namespace orrery::nn {

struct SpecFamily {
  std::string name;
  Spec (*renamed)(const Spec& spec);   // with canonical names in place of aliases
  Spec (*resolved)(const Spec& spec);  // with every setting by name, defaults included
};
Registry<SpecFamily>& spec_families();

// Adds the family of the registry that `registry` returns. Returns true, to initialize a static.
template <auto registry>
bool add_spec_family(
    const std::string& name,
    Spec (*resolve)(const Spec&) = [](const Spec& spec) { return resolved(registry(), spec); }) {
  spec_families().add({name, [](const Spec& spec) { return renamed(registry(), spec); }, resolve});
  return add_family(name, [] { return registry().names(); });
}

// Changes every setting in `settings` that names a member of a family.
template <class Change>  // Spec change(const SpecFamily&, const Spec&)
void change_specs(std::span<const Setting> settings, const Change& change) {
  for (const Setting& setting : settings)
    if (!setting.limits.family.empty()) {
      Spec& spec = *std::get<Spec*>(setting.value);
      spec = change(spec_families().at(setting.limits.family), spec);
    }
}

}  // namespace orrery::nn
