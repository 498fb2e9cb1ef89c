// Registration of the members of a family, such as "attention" or "optimizer": classes with
//   static inline const Info info{.name = ..., .formula = ..., .source = ..., .parameters = ..., .saves = ...};
//   struct Settings { ... visit ... };            if its spec takes settings
//   Type(const Spec& spec, Arguments...)
// and one line, REGISTER_<FAMILY>(Type).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/settings/config.h"
#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"

namespace orrery::nn {

struct Info {
  std::string_view name, formula, source;
  std::string_view parameters = {};            // learned, each with its initial value: "weight 1, bias 0"
  std::string_view saves = {};                 // saved for backward: "x, mean and 1/std of each row"
  std::vector<Setting> (*ranges)() = nullptr;  // settings and limits, if the family has no registry of types
  std::string_view alias = {};                 // another program's name for it, read like the name: "rope"
  // For error messages: an unknown name that is an activation's means this member with it.
  bool takes_activation = false;
  std::string_view variants = {};  // other programs' names of the member with an activation: "swiglu=silu"
};

// Returns the settings of a spec such as `memory(softmax, norm=layer)`.
template <Visited Settings>
Settings settings_from(const Spec& spec) {
  Settings settings;
  read_settings(spec, settings);
  return settings;
}

using Defaults = std::vector<std::pair<std::string, std::string>>;  // names and values

template <class Product, class... Arguments>
struct Entry {
  std::string name, formula, source, parameters, saves;
  Defaults settings;  // settings of the spec
  std::unique_ptr<Product> (*make)(const Spec& spec, Arguments... arguments);
  Spec (*resolve)(const Spec& spec);  // the spec with every setting by name, defaults included
  Spec (*rename)(const Spec& spec);   // the spec with canonical names in place of aliases
  std::vector<Setting> (*ranges)();   // the settings with limits; Setting::value has the type, but is a null pointer
  // For a preset: the spec of the other member that it stands for. Its positional items are
  // defaults, its named items are fixed.
  std::string preset = {};
  std::vector<std::string> aliases = {};  // aliases of the settings
  bool takes_activation = false;
  std::string variants = {};
};
// Expands a preset with items: naive(tanh, gate=silu) is pointwise(tanh, alpha=0, gate=silu).
Spec expand_preset(const std::string& preset, const Spec& spec);

// Throws for a setting that only other members of the family have, and names these: softmax for
// pointwise(relu, soft_cap=30). The constructor rejects other unknown settings.
void check_setting_names(const Spec& spec, const std::string& name, const std::vector<std::string>& aliases,
                         const std::map<std::string, const Defaults*>& family);
// Returns "SPEC: MESSAGE"; the message alone if it begins with name or spec or there are no items.
std::string message_with_spec(const Spec& spec, const std::string& name, std::string_view message);
// Returns the activation that an unknown name means for a member; empty if none.
std::string activation_meant(const Spec& spec, bool takes_activation, std::string_view variants);

// Returns the spec without aliases in its items, also in those that name members of other families.
Spec renamed_items(const Spec& spec, std::span<const Setting> settings);

template <class Entry>
Entry make_entry(const Info& info) {
  Entry entry{};
  entry.name = info.name, entry.formula = info.formula, entry.source = info.source;
  entry.parameters = info.parameters, entry.saves = info.saves;
  if constexpr (requires { entry.variants; })
    entry.takes_activation = info.takes_activation, entry.variants = info.variants;
  return entry;
}

// Marked cold, because it runs once per program.
template <class Type, class Product, class... Arguments>
[[gnu::cold]] bool register_type(Registry<Entry<Product, Arguments...>>& family) {
  auto entry = make_entry<Entry<Product, Arguments...>>(Type::info);
  if constexpr (requires { typename Type::Settings; }) {
    typename Type::Settings defaults{};
    entry.settings = list_settings(defaults);
    for (const Setting& setting : settings_of(defaults))
      entry.aliases.insert(entry.aliases.end(), setting.aliases.begin(), setting.aliases.end());
  }
  entry.make = [](const Spec& spec, Arguments... arguments) -> std::unique_ptr<Product> {
    return std::make_unique<Type>(spec, arguments...);
  };
  entry.resolve = [](const Spec& spec) -> Spec {
    if constexpr (requires { typename Type::Settings; })
      return make_spec(spec.name, settings_from<typename Type::Settings>(spec));
    return spec;
  };
  entry.ranges = []() -> std::vector<Setting> {
    if constexpr (requires { typename Type::Settings; }) return settings_without_values<typename Type::Settings>();
    return {};
  };
  entry.rename = [](const Spec& spec) -> Spec {
    if constexpr (requires { typename Type::Settings; }) {
      typename Type::Settings settings;
      return renamed_items(spec, settings_of(settings));
    }
    return spec;
  };
  std::vector<std::string> aliases;
  if (!Type::info.alias.empty()) aliases.emplace_back(Type::info.alias);
  family.add(std::move(entry), aliases);
  return true;
}

template <class Product, class... Arguments>
bool register_preset(Registry<Entry<Product, Arguments...>>& family, const Info& info, const std::string& preset) {
  auto entry = make_entry<Entry<Product, Arguments...>>(info);
  entry.preset = preset;
  family.add(std::move(entry));
  return true;
}

// Returns the member that a spec names. Throws for an unknown name; if it is an activation's, the
// message names the member that takes one.
template <class Product, class... Arguments>
const Entry<Product, Arguments...>& member_at(const Registry<Entry<Product, Arguments...>>& family, const Spec& spec) {
  if (const auto* const found = family.find(spec.name)) return *found;
  for (const auto& [name, entry] : family)
    if (const std::string f = activation_meant(spec, entry.takes_activation, entry.variants); !f.empty())
      orrery::detail::fail_unknown(family.family(), spec.name, family.names(), {}, name + "(" + f + ")");
  return family.at(spec.name);
}

// Makes the product that a spec names. Errors about its items start with the name or the spec.
template <class Product, class... Arguments>
std::unique_ptr<Product> make_from(const Registry<Entry<Product, Arguments...>>& family, const Spec& spec,
                                   std::type_identity_t<Arguments>... arguments) {
  const Entry<Product, Arguments...>& entry = member_at(family, spec);
  if (!entry.preset.empty()) return make_from(family, expand_preset(entry.preset, spec), arguments...);
  std::map<std::string, const Defaults*> settings;
  for (const auto& [name, member] : family) settings[name] = &member.settings;
  check_setting_names(spec, entry.name, entry.aliases, settings);
  auto product = as_usage([&] { return entry.make(spec, arguments...); },
                          [&](const char* message) { return message_with_spec(spec, entry.name, message); });
  if constexpr (requires { product->origin; }) product->origin = {family.family(), print(Spec{entry.name, spec.items})};
  return product;
}
// Returns the spec as checkpoints record it; unchanged if its name is not in the family.
template <class Product, class... Arguments>
Spec resolved(const Registry<Entry<Product, Arguments...>>& family, const Spec& spec) {
  const Entry<Product, Arguments...>* const entry = family.find(spec.name);
  if (entry && !entry->preset.empty()) return resolved(family, expand_preset(entry->preset, spec));
  return entry ? entry->resolve({entry->name, spec.items}) : spec;
}
// Returns the spec with canonical names for aliases; unchanged if its name is not in the family.
template <class Product, class... Arguments>
Spec renamed(const Registry<Entry<Product, Arguments...>>& family, const Spec& spec) {
  const Entry<Product, Arguments...>* const entry = family.find(spec.name);
  if (entry && !entry->preset.empty()) return renamed(family, expand_preset(entry->preset, spec));
  return entry ? entry->rename({entry->name, spec.items}) : spec;
}

}  // namespace orrery::nn
