#include "models/catalogue/plugins.h"

#include <algorithm>
#include <map>

#include "engine/settings/plugin.h"
#include "engine/settings/registry.h"
#include "engine/types/ascii.h"
#include "models/catalogue/catalogue.h"
#include "models/metrics/base/model_metric.h"
#include "models/settings/settings_file.h"

namespace orrery::models {
namespace {

std::vector<Plugin>& plugins() {
  static std::vector<Plugin> all;
  return all;
}

using Name = std::pair<std::string, std::string>;
std::map<Name, std::vector<std::string>> registered_names() {  // (family, name) -> aliases
  std::map<Name, std::vector<std::string>> all;
  for (const CatalogueFamily& family : catalogue())
    for (const CatalogueEntry& entry : family.entries) all[{family.name, entry.name}] = entry.aliases;
  return all;
}

// Example: "dense(scale_norm, width=2)" contains the name scale_norm.
bool contains_name(const std::string& text, const std::string& name) {
  const auto is_name_char = [](char c) { return is_letter_or_digit(c) || c == '_' || c == '-'; };
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; ++at) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_name_char(text[at - 1])) && (end == text.size() || !is_name_char(text[end]))) return true;
  }
  return false;
}

// Returns the file name in --plugin=PATH: a loaded plug-in may have been copied or built again.
std::string file_name(const std::string& argument) { return argument.substr(argument.find_last_of("/=") + 1); }

}  // namespace

const Plugin& load_plugin_once(const std::string& path) {
  const auto before = registered_names();
  Plugin plugin{path, load_plugin(path), {}, {}};
  for (const auto& [name, aliases] : registered_names()) {
    if (before.contains(name)) continue;
    plugin.names.push_back(name);
    plugin.aliases.insert(plugin.aliases.end(), aliases.begin(), aliases.end());
  }
  plugins().push_back(std::move(plugin));
  return plugins().back();
}

std::span<const Plugin> loaded_plugins() { return plugins(); }
std::vector<std::string> with_plugins(const std::vector<std::string>& arguments) {
  std::vector<std::string> all;
  for (const Plugin& plugin : loaded_plugins()) all.push_back("--plugin=" + plugin.path);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

bool uses_plugin(const TrainSettings& settings, const Plugin& plugin) {
  const auto assignments = list_settings(settings);
  const auto is_set = [&](const std::string& name) {
    return std::any_of(assignments.begin(), assignments.end(), [&](const auto& setting) {
      const bool is_loss_weight =
          setting.first == name && setting.second != "0";  // an extra loss is a setting of its name
      return is_loss_weight || contains_name(setting.second, name);
    });
  };
  const auto metrics = select_metrics(settings.metrics);
  const auto is_logged = [&](const std::string& name) {
    return std::any_of(metrics.begin(), metrics.end(), [&](const auto* metric) { return metric->name == name; });
  };
  const auto is_used = [&](const Name& name) {
    return name.first == "metric" ? is_logged(name.second) : is_set(name.second);
  };
  return std::any_of(plugin.names.begin(), plugin.names.end(), is_used) ||
         std::any_of(plugin.aliases.begin(), plugin.aliases.end(), is_set);
}

std::vector<std::string> plugins_of(const TrainSettings& settings) {
  std::vector<std::string> all;
  for (const Plugin& plugin : loaded_plugins())
    if (uses_plugin(settings, plugin)) all.push_back(plugin.path);
  return all;
}

std::string missing_plugins(const std::string& run) {
  std::vector<std::string> missing = plugins_of_settings_file(run + "/settings.toml");
  std::erase_if(missing, [](const std::string& argument) {
    return std::any_of(plugins().begin(), plugins().end(), [&](const Plugin& plugin) {
      return file_name(plugin_argument(plugin.path)) == file_name(argument);
    });
  });
  return missing.empty() ? "" : "the run was trained with a plug-in; add " + join(missing, " ");
}

}  // namespace orrery::models
