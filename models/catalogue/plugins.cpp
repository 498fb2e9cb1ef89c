#include "models/catalogue/plugins.h"

#include <algorithm>
#include <map>

#include "engine/settings/plugin.h"
#include "engine/settings/registry.h"
#include "models/catalogue/catalogue.h"
#include "models/figures/base/figure.h"
#include "models/settings/settings_file.h"

namespace orrery::models {
namespace {

std::vector<Plugin>& plugins() {
  static std::vector<Plugin> all;
  return all;
}

using Name = std::pair<std::string, std::string>;
std::map<Name, std::vector<std::string>> every_name() {  // (family, name) -> aliases
  std::map<Name, std::vector<std::string>> all;
  for (const CatalogueFamily& family : catalogue())
    for (const CatalogueEntry& entry : family.entries) all[{family.name, entry.name}] = entry.aliases;
  return all;
}

// Example: "dense(scale_norm, width=2)" contains the name scale_norm.
bool has_word(const std::string& text, const std::string& word) {
  const auto within = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) {
    const size_t end = at + word.size();
    if ((at == 0 || !within(text[at - 1])) && (end == text.size() || !within(text[end]))) return true;
  }
  return false;
}

// Returns the file name in --plugin=PATH: a loaded plug-in may have been copied or built again.
std::string file_name(const std::string& word) { return word.substr(word.find_last_of("/=") + 1); }

}  // namespace

const Plugin& load_noted_plugin(const std::string& path) {
  const auto before = every_name();
  Plugin plugin{path, load_plugin(path), {}, {}};
  for (const auto& [name, aliases] : every_name()) {
    if (before.contains(name)) continue;
    plugin.names.push_back(name);
    plugin.aliases.insert(plugin.aliases.end(), aliases.begin(), aliases.end());
  }
  plugins().push_back(std::move(plugin));
  return plugins().back();
}

std::span<const Plugin> noted_plugins() { return plugins(); }
std::vector<std::string> with_plugins(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const Plugin& plugin : noted_plugins()) all.push_back("--plugin=" + plugin.path);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

bool stands_on(const TrainSettings& settings, const Plugin& plugin) {
  const auto assignments = list_settings(settings);
  const auto named = [&](const std::string& name) {
    return std::any_of(assignments.begin(), assignments.end(), [&](const auto& setting) {
      const bool weighs = setting.first == name && setting.second != "0";  // an extra loss is a setting of its name
      return weighs || has_word(setting.second, name);
    });
  };
  const auto figures = figures_called(settings.figures);
  const auto noted = [&](const std::string& name) {
    return std::any_of(figures.begin(), figures.end(), [&](const auto* figure) { return figure->name == name; });
  };
  const auto counts = [&](const Name& name) {
    return name.first == "figure" ? noted(name.second) : named(name.second);
  };
  return std::any_of(plugin.names.begin(), plugin.names.end(), counts) ||
         std::any_of(plugin.aliases.begin(), plugin.aliases.end(), named);
}

std::vector<std::string> plugins_of(const TrainSettings& settings) {
  std::vector<std::string> all;
  for (const Plugin& plugin : noted_plugins())
    if (stands_on(settings, plugin)) all.push_back(plugin.path);
  return all;
}

std::string plugins_lacking(const std::string& run) {
  std::vector<std::string> lacking = plugins_of_settings_file(run + "/settings.toml");
  std::erase_if(lacking, [](const std::string& word) {
    return std::any_of(plugins().begin(), plugins().end(),
                       [&](const Plugin& plugin) { return file_name(plugin_word(plugin.path)) == file_name(word); });
  });
  return lacking.empty() ? "" : "the run was trained with a plug-in; add " + join(lacking, " ");
}

}  // namespace orrery::models
