#include "nn/base/entry.h"

#include <algorithm>

#include "engine/types/usage_error.h"
#include "nn/base/gradient_case.h"
#include "nn/base/spec_family.h"

namespace orrery::nn {

void check_setting_names(const Spec& spec, const std::string& name, const std::vector<std::string>& aliases,
                         const std::map<std::string, const Defaults*>& family) {
  const auto has = [](const Defaults& settings, const std::string& key) {
    return std::any_of(settings.begin(), settings.end(), [&](const auto& setting) { return setting.first == key; });
  };
  const Defaults& own = *family.at(name);
  for (const Spec::Item& item : spec.items) {
    if (item.key.empty() || has(own, item.key)) continue;
    if (std::find(aliases.begin(), aliases.end(), item.key) != aliases.end()) continue;
    std::vector<std::string> others, keys;
    for (const auto& [other, settings] : family)
      if (has(*settings, item.key)) others.push_back(other);
    for (const auto& [key, value] : own) keys.push_back(key);
    check_usage(others.empty(), spec, ": ", item.key, "=", item.value, " is a setting of ", join(others), ", not of ",
                name, keys.empty() ? ", which takes no settings" : "; " + name + " takes " + join(keys));
  }
}

Spec expand_preset(const std::string& preset, const Spec& spec) {
  const Spec own = parse_spec(preset);
  const auto is_named = [](const Spec::Item& item) { return !item.key.empty(); };
  const auto fixed = std::find_if(own.items.begin(), own.items.end(), is_named);
  const auto named = std::find_if(spec.items.begin(), spec.items.end(), is_named);
  Spec all{own.name, {spec.items.begin(), named}};
  for (auto item = own.items.begin() + std::min(fixed - own.items.begin(), named - spec.items.begin()); item != fixed;
       ++item)
    all.items.push_back(*item);
  all.items.insert(all.items.end(), fixed, own.items.end());
  for (auto item = named; item != spec.items.end(); ++item) {
    const auto same = std::find_if(fixed, own.items.end(), [&](const Spec::Item& f) { return f.key == item->key; });
    check(same == own.items.end(), spec, ": ", spec.name, " is ", preset, " with ", item->key, " fixed; use ", own.name,
          " for another value");
    all.items.push_back(*item);
  }
  return all;
}

Spec renamed_items(const Spec& spec, std::span<const Setting> settings) {
  Spec renamed = without_aliases(spec, settings);
  for (size_t i = 0; i < renamed.items.size(); ++i)
    if (const Setting* const setting = setting_of_item(renamed, i, settings);
        setting && !setting->limits.family.empty())
      renamed.items[i].value = spec_families().at(setting->limits.family).renamed(renamed.items[i].value);
  return renamed;
}

std::string message_with_spec(const Spec& spec, const std::string& name, std::string_view message) {
  const bool names_it = spec.items.empty() || message.starts_with(name + ":") || message.starts_with(print(spec));
  return names_it ? std::string(message) : text(spec, ": ", message);
}

std::string activation_meant(const Spec& spec, bool takes_activation, std::string_view variants) {
  for (std::string_view rest = variants; !rest.empty();) {
    const size_t comma = std::min(rest.find(", "), rest.size()), equals = rest.find('=');
    if (rest.substr(0, equals) == spec.name) return std::string(rest.substr(equals + 1, comma - equals - 1));
    rest.remove_prefix(std::min(comma + 2, rest.size()));
  }
  if (!takes_activation) return {};
  for (const Family& family : families())
    if (family.name == "activation" && std::binary_search(family.members.begin(), family.members.end(), spec.name))
      return print(spec);
  return {};
}

}  // namespace orrery::nn
