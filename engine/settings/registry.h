// Named entries of one family, sorted by name. Each file registers its own; the family's registry:
//
//   Registry<ActivationEntry>& activations() {
//     static Registry<ActivationEntry> all("activation");   // made at the first call: the order of static objects
//     return all;                                           // in different files does not matter
//   }
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/settings/plugin.h"
#include "engine/types/check.h"

namespace orrery {

// Returns the candidate nearest to a mistyped name by edit distance, else the longest one that the
// name begins with (layer for layer_norm); empty if there is none.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
std::string join(std::span<const std::string> words, std::string_view between = ", ");

namespace detail {
// `aliases` maps each alias to its name. `meant`: the name to suggest; empty: the nearest one.
[[noreturn]] void fail_unknown(std::string_view family, std::string_view word, std::span<const std::string> names,
                               const std::map<std::string, std::string, std::less<>>& aliases,
                               std::string_view meant = {});
}  // namespace detail

template <class Entry>  // with a member `name`
class Registry {
 public:
  explicit Registry(std::string family) : family_(std::move(family)) {}
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Entries never move, so their addresses stay valid. Throws if a name or alias is taken.
  [[gnu::cold, gnu::noinline]] void add(Entry entry, const std::vector<std::string>& aliases = {}) {
    const std::string name(entry.name);
    if (!is_free(name)) return;
    for (const std::string& alias : aliases) {
      if (!is_free(alias)) return;
      aliases_.emplace(alias, name);
    }
    entries_.emplace(name, std::move(entry));
  }

  const Entry* find(std::string_view name) const {  // by name or alias; null if there is none
    const auto alias = aliases_.find(name);
    const auto found = entries_.find(alias == aliases_.end() ? name : std::string_view(alias->second));
    return found == entries_.end() ? nullptr : &found->second;
  }
  const Entry& at(std::string_view name) const {  // throws with a list of the names if there is none
    const Entry* const found = find(name);
    if (!found) detail::fail_unknown(family_, name, names(), aliases_);
    return *found;
  }

  std::vector<std::string> names() const {  // without aliases
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }
  std::vector<std::string> aliases(std::string_view name) const {  // the entry's aliases
    std::vector<std::string> all;
    for (const auto& [alias, of] : aliases_)
      if (of == name) all.push_back(alias);
    return all;
  }
  const std::string& family() const { return family_; }
  size_t size() const { return entries_.size(); }
  auto begin() const { return entries_.begin(); }  // pairs of name and entry
  auto end() const { return entries_.end(); }

 private:
  // Throws if not. No exception may leave a plug-in, so there the reason goes to the loader.
  bool is_free(const std::string& name) const {
    std::string reason;
    if (name.empty()) reason = family_ + ": an entry has no name";
    if (entries_.contains(name) || aliases_.contains(name))
      reason = family_ + ": '" + name + "' is registered twice; choose another name";
    if (!reason.empty() && !detail::refuse_in_plugin(reason)) fail(reason);
    return reason.empty();
  }

  std::string family_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> aliases_;
};

}  // namespace orrery
