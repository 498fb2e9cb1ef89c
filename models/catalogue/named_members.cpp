#include "models/catalogue/named_members.h"

#include <algorithm>

namespace orrery::models {
namespace {

class Members {
 public:
  explicit Members(std::span<const CatalogueFamily> catalogue) : catalogue_(catalogue) {}
  std::vector<NamedMember> found;

  void add(const std::string& family, const std::string& name) {
    if (const CatalogueEntry* const entry = find_entry(catalogue_, family, name)) found.push_back({family, entry});
  }
  // Adds activations, normalizations in settings called so, and attention settings by key or by value.
  void add_items(const Spec& spec) {
    for (const Spec::Item& item : spec.items) {
      const std::string& value = item.value.name;
      if (value == "none" || value == "no" || value == "yes") continue;
      add("activation", value);
      if (item.key.find("norm") != std::string::npos) add("normalization", value);
      add("attention_setting", item.key);
      add("attention_setting", value);
      add_items(item.value);
    }
  }

 private:
  std::span<const CatalogueFamily> catalogue_;
};

}  // namespace

const CatalogueEntry* find_entry(std::span<const CatalogueFamily> catalogue, const std::string& family,
                                 const std::string& name) {
  for (const CatalogueFamily& each : catalogue) {
    if (each.name != family) continue;
    for (const CatalogueEntry& entry : each.entries)
      if (entry.name == name || std::find(entry.aliases.begin(), entry.aliases.end(), name) != entry.aliases.end())
        return &entry;
  }
  return nullptr;
}

std::vector<NamedMember> members_named(std::span<const CatalogueFamily> catalogue, const std::string& family,
                                       const Spec& spec) {
  Members members(catalogue);
  members.add(family, spec.name);
  members.add_items(spec);
  return std::move(members.found);
}

}  // namespace orrery::models
