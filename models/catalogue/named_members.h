// The members of families that a spec names, with their entries in the catalogue.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/settings/spec.h"
#include "models/catalogue/catalogue.h"

namespace orrery::models {

struct NamedMember {
  std::string family;
  const CatalogueEntry* entry;  // in the catalogue that was given
};

// Returns the family's entry with this name or alias; null: it has none.
const CatalogueEntry* find_entry(std::span<const CatalogueFamily> catalogue, const std::string& family,
                                 const std::string& name);

// Returns the family's member that a spec names, then those that its items name: softmax, rms and slots of
// softmax(qk_norm=rms, persistent=slots(8)). Other values, such as numbers, name none.
std::vector<NamedMember> members_named(std::span<const CatalogueFamily> catalogue, const std::string& family,
                                       const Spec& spec);

}  // namespace orrery::models
