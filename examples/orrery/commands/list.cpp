// orrery list: the catalogue.
#include <algorithm>
#include <iostream>

#include "engine/settings/registry.h"
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

// Matches "attention" or the folder's name, "attentions", with the family's settings and presets.
bool called(const models::CatalogueFamily& family, const std::string& word) {
  const std::string name = family.name;
  for (const std::string part : {"_setting", "_preset"}) {
    if (!name.ends_with(part) || word == name || word == name + "s") continue;
    const std::string owner = name.substr(0, name.size() - part.size());
    return word == owner || word == owner + "s";
  }
  return word == name || word == name + "s" || word == name + "es";
}
bool called(const models::CatalogueEntry& entry, const std::string& word) {
  return entry.name == word || std::find(entry.aliases.begin(), entry.aliases.end(), word) != entry.aliases.end();
}

}  // namespace

std::string catalogue_of(const std::string& word, const std::string& only_family) {
  std::string all;
  for (const models::CatalogueFamily& family : models::catalogue()) {
    if (!only_family.empty() && family.name != only_family) continue;
    if (only_family.empty() && called(family, word)) all += models::catalogue_text(family);
    for (const models::CatalogueEntry& entry : family.entries)
      if (called(entry, word)) all += family.name + ":\n" + models::catalogue_text(entry);
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

void print_matches(const std::string& word) {
  const std::string found = catalogue_of(word), meant = found.empty() ? nearest(word, catalogue_names()) : "";
  check(!found.empty(), "list: unknown family or name '", word, "'; ",
        meant.empty() ? "orrery list prints all" : "did you mean '" + meant + "'?");
  std::cout << found;
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
  check(!settings.markdown || words.empty(), "list: --markdown prints the whole catalogue; leave '",
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
