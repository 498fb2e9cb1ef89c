// orrery list: the catalogue.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>

#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "examples/orrery/terminal/help_text.h"
#include "examples/orrery/terminal/json_output.h"
#include "examples/orrery/terminal/table.h"
#include "models/catalogue/catalogue.h"

namespace orrery::program {
namespace {

struct ListSettings {
  bool markdown = false, json = false;
  template <class V>
  void visit(V& v) {
    v("markdown", markdown, "print the catalogue as Markdown, as in the pages CATALOGUE.md");
    v("json", json, json_help);
  }
};

std::string plural(const std::string& name) {
  if (name.ends_with("sis")) return name.substr(0, name.size() - 2) + "es";
  return name + (name.ends_with("s") ? "es" : "s");
}

// Matches "attention" or the folder's name, "attentions", with the family's settings and presets.
bool matches(const models::CatalogueFamily& family, const std::string& word) {
  const std::string& former = family.former_name;
  if (!former.empty() && (word == former || word == plural(former))) return true;
  const std::string name = family.name;
  for (const std::string suffix : {"_setting", "_preset"}) {
    if (!name.ends_with(suffix) || word == name || word == name + "s") continue;
    const std::string owner = name.substr(0, name.size() - suffix.size());
    return word == owner || word == owner + "s";
  }
  return word == name || word == plural(name);
}
bool matches(const models::CatalogueEntry& entry, const std::string& word) {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  return entry.name == word || has(entry.aliases) || has(entry.other_names);
}

// A family, or some of its entries.
struct Match {
  models::CatalogueFamily family;
  bool whole;
};

// Returns the families and entries with this name, or only the entry of one family.
std::vector<Match> matches_of(const std::string& word, const std::string& only_family = {}) {
  std::vector<Match> found;
  for (models::CatalogueFamily& family : models::catalogue()) {
    if (!only_family.empty() && family.name != only_family) continue;
    const bool whole = only_family.empty() && matches(family, word);
    if (!whole) std::erase_if(family.entries, [&](const auto& entry) { return !matches(entry, word); });
    if (whole || !family.entries.empty()) found.push_back({std::move(family), whole});
  }
  return found;
}

std::vector<Match> whole_catalogue() {
  std::vector<Match> all;
  for (models::CatalogueFamily& family : models::catalogue()) all.push_back({std::move(family), true});
  return all;
}

std::string text_of(const Match& match) {
  if (match.whole) return models::catalogue_text(match.family);
  std::string all = match.family.name + ":\n";
  for (const models::CatalogueEntry& entry : match.family.entries) all += models::catalogue_text(entry);
  return all;
}

// Replaces the defaults of settings by the values of a spec's items.
void set_values(models::CatalogueEntry& entry, const Spec& spec) {
  for (size_t i = 0; i < spec.items.size() && !entry.described.empty(); ++i) {
    const Setting* const setting = setting_of_item(spec, i, entry.described);
    check_usage(setting, "help: ", entry.name, " has no setting '",
                spec.items[i].key.empty() ? print(spec.items[i].value) : spec.items[i].key,
                "'; orrery help ", entry.name, " lists its settings");
    for (auto& [key, value] : entry.settings)
      if (key == setting->key) value = print(spec.items[i].value);
  }
}

// Returns an entry with a line per setting.
std::string help_of(models::CatalogueEntry entry, const Spec& spec) {
  constexpr size_t margin = 6;  // as of the other lines of an entry
  set_values(entry, spec);
  const std::string rows =
      print_settings(describe(entry.described, entry.settings), HelpForm::in_spec, help_columns() - margin);
  if (!rows.empty()) entry.settings.clear();
  std::string all = models::catalogue_text(entry);
  if (!rows.empty()) all += "      settings:\n";
  for (size_t at = 0; at < rows.size(); at = rows.find('\n', at) + 1)
    all += std::string(margin, ' ') + rows.substr(at, rows.find('\n', at) + 1 - at);
  return all;
}

Json json_of(const models::CatalogueEntry& entry) {
  Json settings = Json::object(), properties = Json::object();
  for (const auto& [key, value] : entry.settings) settings[key] = value;
  for (const auto& [key, value] : entry.properties) properties[key] = value;
  return {{"name", entry.name},     {"aliases", entry.aliases}, {"formula", entry.formula},
          {"source", entry.source}, {"settings", settings},     {"properties", properties}};
}
Json json_of(const Match& match) {
  Json entries = Json::array();
  for (const models::CatalogueEntry& entry : match.family.entries) entries.push_back(json_of(entry));
  return {{"family", match.family.name}, {"description", match.family.description}, {"entries", entries}};
}

}  // namespace

std::string catalogue_of(const std::string& spec, const std::string& only_family) {
  const Spec parsed = spec.ends_with(")") ? as_usage([&] { return parse_spec(spec); }) : Spec{spec, {}};
  std::string all;
  for (const Match& match : matches_of(parsed.name, only_family)) {
    if (match.whole) {
      all += text_of(match);
      continue;
    }
    all += match.family.name + ":\n";
    for (const models::CatalogueEntry& entry : match.family.entries) all += help_of(entry, parsed);
  }
  return all;
}

std::vector<std::string> catalogue_names() {
  std::vector<std::string> all;
  for (const models::CatalogueFamily& family : models::catalogue()) {
    all.push_back(family.name);
    for (const models::CatalogueEntry& entry : family.entries) all.push_back(entry.name);
  }
  return all;
}

namespace {

void check_found(const std::vector<Match>& matches, const std::string& word) {
  const std::string meant = matches.empty() ? nearest(word, catalogue_names()) : "";
  check_usage(!matches.empty(), "list: unknown family or name '", word, "'; ",
              meant.empty() ? "orrery list prints all" : "did you mean '" + meant + "'?");
}

}  // namespace

CommandHelp list_help(const Arguments&) {
  ListSettings settings;
  std::vector<std::string> families;
  for (const models::CatalogueFamily& family : models::catalogue()) families.push_back(family.name);
  return {
      "Prints formula, settings with their defaults, learned parameters with their initial values, tensors saved "
      "for backward, and source; for activations also the kinks, the value and derivative at 0, the minimum and "
      "the limits at -infinity and infinity.\nFamilies, singular or plural: " +
          join(families),
      describe(settings_of(settings)), "", "orrery list attentions softmax", catalogue_names()};
}

int list(const Arguments& arguments) {
  ListSettings settings;
  const std::vector<std::string> words = read_arguments("list", arguments, settings_of(settings));
  check_usage(!settings.markdown || !settings.json,
              "list: --markdown and --json are two forms of the catalogue; give one");
  check_usage(!settings.markdown || words.empty(), "list: --markdown prints the whole catalogue; leave '",
              words.empty() ? "" : words[0], "' out");
  if (settings.markdown) {
    std::cout << models::catalogue_markdown();
    return 0;
  }
  std::vector<Match> all = words.empty() ? whole_catalogue() : std::vector<Match>();
  for (const std::string& word : words) {
    std::vector<Match> found = matches_of(word);
    check_found(found, word);
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  JsonOutput json(settings.json);
  Json families = Json::array();
  for (const Match& match : all) {
    if (json)
      families.push_back(json_of(match));
    else
      std::cout << wrapped(text_of(match), terminal_columns(STDOUT_FILENO, SIZE_MAX), 2) << (words.empty() ? "\n" : "");
  }
  if (json) json.print(families);
  return 0;
}

}  // namespace orrery::program
