// The catalogue of all registered names, for `orrery list` and the pages nn/CATALOGUE.md and models/CATALOGUE.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/settings/config.h"

namespace orrery::models {

struct CatalogueEntry {
  std::string name;
  std::vector<std::string> aliases;
  std::string formula, source;
  std::vector<std::pair<std::string, std::string>> settings;    // with defaults, in the order of a spec
  std::vector<std::pair<std::string, std::string>> properties;  // equal names throughout a family
  std::vector<std::string> other_names = {};                    // former ones and synonyms, found but not shown
  // The settings with help and limits, also those that a preset does not change; `value` is null.
  std::vector<Setting> described = {};
};
struct CatalogueFamily {
  std::string name, title, description;
  std::vector<CatalogueEntry> entries;  // by name
  bool formulas = true;                 // false: `formula` describes an entry in words
  std::string former_name = {};         // found but not shown
};

// Returns all names registered now, by family.
std::vector<CatalogueFamily> catalogue();

std::string catalogue_text(const CatalogueFamily& family);  // for a terminal
std::string catalogue_text(const CatalogueEntry& entry);
std::string catalogue_markdown();  // the two pages, between their markers

}  // namespace orrery::models
