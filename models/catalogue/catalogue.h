// Everything that has a name: what `orrery list` prints and what the README shows.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace orrery::models {

struct CatalogueEntry {
  std::string name;
  std::vector<std::string> aliases;
  std::string formula, source;
  std::vector<std::pair<std::string, std::string>> settings;  // with their defaults, in the order of a spec
  std::vector<std::pair<std::string, std::string>> facts;     // the same ones throughout a family
};
struct CatalogueFamily {
  std::string name, title, description;
  std::vector<CatalogueEntry> entries;  // by name
  bool formulas = true;                 // false: `formula` says in words what an entry is
};

// All registered names, family by family, as the registries are now.
std::vector<CatalogueFamily> catalogue();

std::string catalogue_text(const CatalogueFamily& family);  // for a terminal
std::string catalogue_text(const CatalogueEntry& entry);
std::string catalogue_markdown();  // what stands between the README's markers

}  // namespace orrery::models
