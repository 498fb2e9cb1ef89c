#include "models/reports/report_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/catalogue/catalogue.h"

namespace orrery::models {
namespace {

struct Part {
  std::string family;
  const CatalogueEntry* entry;
  std::string used;  // settings that name it
};

class Parts {
 public:
  void add_settings(TrainSettings settings) {
    for (const Setting& setting : settings_of(settings)) {
      if (setting.key == "model")
        add("model", settings.model, "model = " + settings.model),
            add("model_preset", settings.model, "model = " + settings.model);
      if (setting.key == "task") add("task", settings.task, "task = " + settings.task);
      const Spec* const spec = std::holds_alternative<Spec*>(setting.value) ? std::get<Spec*>(setting.value) : nullptr;
      const std::string said = setting.key + " = " + print_value(setting);
      if (setting.key == "tokenizer") add("tokenizer", parse_name(print_value(setting)), said);
      if (setting.key == "loss" || setting.key == "label_smoothing")
        add("loss", print_value(setting) == "sigmoid" ? "sigmoid_cross_entropy" : "cross_entropy",
            "task = " + settings.task);
      if (setting.key.starts_with("losses.") && print_value(setting) != "0") add("loss", setting.key.substr(7), said);
      if (!spec || setting.limits.family.empty()) continue;
      add(setting.limits.family, spec->name, said);
      add_items(*spec, said);
    }
  }
  const std::vector<Part>& all() const { return parts_; }

 private:
  static std::string parse_name(const std::string& spec) { return spec.substr(0, spec.find('(')); }

  // Adds components that a spec names: activations, normalizations in settings called so, and
  // attention settings by key or by value.
  void add_items(const Spec& spec, const std::string& said) {
    for (const Spec::Item& item : spec.items) {
      const std::string& value = item.value.name;
      if (value == "none" || value == "no" || value == "yes") continue;
      add("activation", value, said);
      if (item.key.find("norm") != std::string::npos) add("normalization", value, said);
      add("attention_setting", item.key, said);
      add("attention_setting", value, said);
      add_items(item.value, said);
    }
  }

  // Ignores names that the family lacks: many values are numbers or other names.
  void add(const std::string& family, const std::string& name, const std::string& said) {
    for (const CatalogueFamily& each : catalogue_) {
      if (each.name != family) continue;
      for (const CatalogueEntry& entry : each.entries) {
        const bool meant =
            entry.name == name || std::find(entry.aliases.begin(), entry.aliases.end(), name) != entry.aliases.end();
        if (!meant) continue;
        const auto known = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.entry == &entry; });
        if (known == parts_.end())
          parts_.push_back({family, &entry, said});
        else if (known->used.find(said) == std::string::npos)
          known->used += "\n" + said;
      }
    }
  }

  std::vector<CatalogueFamily> catalogue_ = catalogue();
  std::vector<Part> parts_;
};

Json pairs(const std::vector<std::pair<std::string, std::string>>& given) {
  Json all = Json::array();
  for (const auto& [key, value] : given)
    if (!value.empty()) all.push_back({key, value});
  return all;
}

}  // namespace

void add_parts(Json& sections, std::span<const ReportedRun> runs, const Derivation& derivation) {
  Parts parts;
  for (const ReportedRun& run : runs)
    if (run.settings) parts.add_settings(*run.settings);
  if (parts.all().empty()) return;
  Json entries = Json::array();
  for (const Part& part : parts.all()) {
    std::string family = part.family;
    std::replace(family.begin(), family.end(), '_', ' ');
    entries.push_back({{"family", family},
                       {"name", part.entry->name},
                       {"used", part.used},
                       {"formula", part.entry->formula},
                       {"derivation", derivation(part.family, part.entry->name)},
                       {"settings", pairs(part.entry->settings)},
                       {"facts", pairs(part.entry->facts)},
                       {"source", part.entry->source}});
  }
  sections.push_back(
      report_section("Formulas", "formula", "Components named in the settings", "", {{"entries", entries}}));
}

}  // namespace orrery::models
