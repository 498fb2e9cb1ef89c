#include "models/reports/report_components.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "models/architectures/masks.h"
#include "models/catalogue/named_members.h"
#include "nn/base/spec_family.h"

namespace orrery::models {
namespace {

struct UsedComponent {
  std::string family;
  const CatalogueEntry* entry;
  std::string used;  // settings that name it
};

class UsedComponents {
 public:
  void add_settings(TrainSettings settings) {
    const auto masks = mask_specs(settings.model_settings);
    for (const Setting& setting : settings_of(settings)) {
      if (setting.key == "model")
        add("model", settings.model, "model = " + settings.model),
            add("model_preset", settings.model, "model = " + settings.model);
      if (setting.key == "task") add("task", settings.task, "task = " + settings.task);
      const Spec* const spec = std::holds_alternative<Spec*>(setting.value) ? std::get<Spec*>(setting.value) : nullptr;
      const std::string assignment = setting.key + " = " + print_value(setting);
      for (const auto& [key, mask] : masks)
        if (key == setting.key) add("mask", mask.name, assignment);
      if (setting.key == "tokenizer") add("tokenizer", parse_name(print_value(setting)), assignment);
      if (setting.key == "loss" || setting.key == "label_smoothing")
        add("loss", print_value(setting) == "sigmoid" ? "sigmoid_cross_entropy" : "cross_entropy",
            "task = " + settings.task);
      if (setting.key.starts_with("losses.") && print_value(setting) != "0")
        add("loss", setting.key.substr(7), assignment);
      if (!spec || setting.limits.family.empty()) continue;
      add(setting.limits.family, *spec, assignment);
    }
  }
  const std::vector<UsedComponent>& all() const { return components_; }

 private:
  static std::string parse_name(const std::string& spec) { return spec.substr(0, spec.find('(')); }

  // Ignores names that the family lacks: many values are numbers or other names.
  void add(const std::string& family, const Spec& spec, const std::string& assignment) {
    for (const NamedMember& member : members_named(catalogue_, family, spec)) {
      const auto known = std::find_if(components_.begin(), components_.end(),
                                      [&](const UsedComponent& p) { return p.entry == member.entry; });
      if (known == components_.end())
        components_.push_back({member.family, member.entry, assignment});
      else if (known->used.find(assignment) == std::string::npos)
        known->used += "\n" + assignment;
    }
  }
  void add(const std::string& family, const std::string& name, const std::string& assignment) {
    add(family, Spec{name, {}}, assignment);
  }

  std::vector<CatalogueFamily> catalogue_ = catalogue();
  std::vector<UsedComponent> components_;
};

Json pairs(const std::vector<std::pair<std::string, std::string>>& given) {
  Json all = Json::array();
  for (const auto& [key, value] : given)
    if (!value.empty()) all.push_back({key, value});
  return all;
}

}  // namespace

void add_components(Json& sections, std::span<const TrainSettings> settings, const Derivation& derivation) {
  UsedComponents components;
  for (const TrainSettings& each : settings) components.add_settings(each);
  if (components.all().empty()) return;
  Json entries = Json::array();
  for (const UsedComponent& component : components.all()) {
    std::string family = component.family;
    std::replace(family.begin(), family.end(), '_', ' ');
    const SourceHead head = derivation(component.family, component.entry->name);
    entries.push_back({{"family", family},
                       {"name", component.entry->name},
                       {"used", component.used},
                       {"formula", component.entry->formula},
                       {"file", head.file},
                       {"link", head.link},
                       {"derivation", head.text},
                       {"settings", pairs(component.entry->settings)},
                       {"properties", pairs(component.entry->properties)},
                       {"source", component.entry->source}});
  }
  sections.push_back(
      report_section("Formulas", "formula", "Components named in the settings", "", {{"entries", entries}}));
}

void add_formulas(ComponentsView& tree, const Derivation& derivation) {
  const std::vector<CatalogueFamily> all = catalogue();
  std::map<std::string, size_t> numbers;
  for (ComponentsView::Component& component : tree.components) {
    const auto add = [&](const std::string& family, const std::string& name, const std::string& formula) {
      const auto [known, is_new] = numbers.emplace(family + "/" + name, tree.formulas.size());
      const SourceHead source = is_new ? derivation(family, name) : SourceHead();
      if (is_new) tree.formulas.push_back({family, name, formula, source.file, source.link});
      component.formulas.push_back(known->second);
    };
    if (!component.spec.empty()) {
      const Spec spec = nn::spec_families().at(component.kind).resolved(parse_spec(component.spec));
      for (const NamedMember& member : members_named(all, component.kind, spec))
        add(member.family, member.entry->name, member.entry->formula);
    } else if (const CatalogueEntry* const layer = find_entry(all, "layer", component.kind)) {
      add("layer", layer->name, layer->formula);
    } else {
      add("", component.kind, "");
    }
  }
}

}  // namespace orrery::models
