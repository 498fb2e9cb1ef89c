// orrery list: the catalogue.
#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/commands/commands.h"
#include "examples/orrery/terminal/arguments.h"
#include "models/catalogue/catalogue.h"

namespace orrery::program {
namespace {

struct ListSettings {
  bool markdown = false;
  template <class V>
  void visit(V& v) {
    v("markdown", markdown, "print the catalogue as Markdown, as in the README");
  }
};

std::string plural(const std::string& name) {
  if (name.ends_with("sis")) return name.substr(0, name.size() - 2) + "es";
  return name + (name.ends_with("s") ? "es" : "s");
}

// Matches "attention" or the folder's name, "attentions", with the family's settings and presets.
bool called(const models::CatalogueFamily& family, const std::string& word) {
  const std::string& former = family.former_name;
  if (!former.empty() && (word == former || word == plural(former))) return true;
  const std::string name = family.name;
  for (const std::string part : {"_setting", "_preset"}) {
    if (!name.ends_with(part) || word == name || word == name + "s") continue;
    const std::string owner = name.substr(0, name.size() - part.size());
    return word == owner || word == owner + "s";
  }
  return word == name || word == plural(name);
}
bool called(const models::CatalogueEntry& entry, const std::string& word) {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  return entry.name == word || has(entry.aliases) || has(entry.other_names);
}

void print_matches(const std::string& word) {
  bool found = false;
  std::vector<std::string> known;
  for (const models::CatalogueFamily& family : models::catalogue()) {
    known.push_back(family.name);
    if (called(family, word)) {
      std::cout << models::catalogue_text(family);
      found = true;
    }
    for (const models::CatalogueEntry& entry : family.entries) {
      known.push_back(entry.name);
      if (!called(entry, word)) continue;
      std::cout << family.name << ":\n" << models::catalogue_text(entry);
      found = true;
    }
  }
  if (found) return;
  const std::string meant = nearest(word, known);
  fail_usage("list: unknown family or name '", word, "'; ",
             meant.empty() ? "orrery list prints all" : "did you mean '" + meant + "'?");
}

}  // namespace

std::string list_help(const Arguments&) {
  ListSettings settings;
  std::vector<std::string> families;
  for (const models::CatalogueFamily& family : models::catalogue()) families.push_back(family.name);
  return "orrery list [FAMILY or NAME] ...: formula, settings with their defaults, learned parameters with their\n"
         "initial values, tensors saved for backward, and source; for activations also the kinks, the value and\n"
         "derivative at 0, the minimum and the limits at -infinity and infinity.\n"
         "Families, singular or plural: " +
         join(families) + "\n" + describe(settings_of(settings)) + "\nExample: orrery list attentions softmax";
}

int list(const Arguments& arguments) {
  ListSettings settings;
  const std::vector<std::string> words = read_arguments("list", arguments, settings_of(settings));
  check_usage(!settings.markdown || words.empty(), "list: --markdown prints the whole catalogue; leave '",
              words.empty() ? "" : words[0], "' out");
  if (settings.markdown) {
    std::cout << models::catalogue_markdown();
    return 0;
  }
  for (const std::string& word : words) print_matches(word);
  if (words.empty())
    for (const models::CatalogueFamily& family : models::catalogue())
      std::cout << models::catalogue_text(family) << "\n";
  return 0;
}

}  // namespace orrery::program
