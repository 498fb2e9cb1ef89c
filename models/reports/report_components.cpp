#include "models/reports/report_components.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/architectures/masks.h"
#include "models/catalogue/catalogue.h"

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
      add(setting.limits.family, spec->name, assignment);
      add_items(*spec, assignment);
    }
  }
  const std::vector<UsedComponent>& all() const { return components_; }

 private:
  static std::string parse_name(const std::string& spec) { return spec.substr(0, spec.find('(')); }

  // Adds components that a spec names: activations, normalizations in settings called so, and
  // attention settings by key or by value.
  void add_items(const Spec& spec, const std::string& assignment) {
    for (const Spec::Item& item : spec.items) {
      const std::string& value = item.value.name;
      if (value == "none" || value == "no" || value == "yes") continue;
      add("activation", value, assignment);
      if (item.key.find("norm") != std::string::npos) add("normalization", value, assignment);
      add("attention_setting", item.key, assignment);
      add("attention_setting", value, assignment);
      add_items(item.value, assignment);
    }
  }

  // Ignores names that the family lacks: many values are numbers or other names.
  void add(const std::string& family, const std::string& name, const std::string& assignment) {
    for (const CatalogueFamily& each : catalogue_) {
      if (each.name != family) continue;
      for (const CatalogueEntry& entry : each.entries) {
        const bool meant =
            entry.name == name || std::find(entry.aliases.begin(), entry.aliases.end(), name) != entry.aliases.end();
        if (!meant) continue;
        const auto known = std::find_if(components_.begin(), components_.end(),
                                        [&](const UsedComponent& p) { return p.entry == &entry; });
        if (known == components_.end())
          components_.push_back({family, &entry, assignment});
        else if (known->used.find(assignment) == std::string::npos)
          known->used += "\n" + assignment;
      }
    }
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

void add_components(Json& sections, std::span<const ReportedRun> runs, const Derivation& derivation) {
  UsedComponents components;
  for (const ReportedRun& run : runs)
    if (run.settings) components.add_settings(*run.settings);
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
                       {"derivation", head.text},
                       {"settings", pairs(component.entry->settings)},
                       {"properties", pairs(component.entry->properties)},
                       {"source", component.entry->source}});
  }
  sections.push_back(
      report_section("Formulas", "formula", "Components named in the settings", "", {{"entries", entries}}));
}

}  // namespace orrery::models
