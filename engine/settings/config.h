// Settings: structs whose members are visited by name, and the text that sets them (spec.h).
//
// A settings struct names its members once; parsing, printing, help and range checks use that:
//
//   struct Settings {
//     int64_t batch_size = 12;
//     double learning_rate = 1e-3;
//     template <class V>
//     void visit(V& v) {
//       v("batch_size", batch_size, "sequences per micro-batch", at_least(1));
//       v("learning_rate|rate", learning_rate, "step size", above(0));   // also read under its former name
//       v.group("loss", loss);   // members of a nested struct: loss.weight, ...
//       v.section("machine");    // section of the help for the settings that follow
//       v.common("threads", threads, "CPU threads");   // if any are marked, the short help lists these
//     }
//   };
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/settings/spec.h"

namespace orrery {

struct Setting {                     // one member of a visited struct
  std::string key;                   // empty: read by its aliases only, never written
  std::vector<std::string> aliases;  // read like the key, never written
  std::variant<int64_t*, double*, bool*, std::string*, Spec*, LearnableNumber*, std::vector<double>*> value;
  std::string help;
  Limits limits;
  std::string section = {};  // section of the help; empty: none
  bool common = false;       // listed by the short help
};

namespace detail {
class SettingCollector {
 public:
  // `key` is the name, followed by aliases after bars: "grad_clip|clip".
  template <class T>
  void operator()(std::string_view key, T& value, std::string_view help = "", Limits limits = {}) {
    add(key, &value, help, std::move(limits));
  }
  template <class T>
  void common(std::string_view key, T& value, std::string_view help = "", Limits limits = {}) {
    add(key, &value, help, std::move(limits));
    settings.back().common = marks_common_ = true;
  }
  void section(std::string_view name) { section_ = name; }
  template <class Group>
  void group(std::string_view key, Group& members) {
    const std::string outer = prefix_;
    prefix_ += std::string(key) + ".";
    members.visit(*this);
    prefix_ = outer;
  }
  // Adds the members of a struct whose type only its owner has (any_settings.h), with their marks.
  void include(std::vector<Setting> members);
  // Returns the settings. If common() marks none, all are common, except those of include().
  std::vector<Setting> collected();
  std::vector<Setting> settings;

 private:
  void add(std::string_view key, decltype(Setting::value) value, std::string_view help, Limits limits);

  std::string prefix_, section_;
  std::vector<size_t> own_;  // indices of the settings that are not included
  bool marks_common_ = false;
};
}  // namespace detail

template <class T>
concept Visited = requires(T& settings, detail::SettingCollector& v) {
  settings.visit(v);
};

// Returns the members of a settings struct in the order of its visit; they point into the struct.
template <Visited Settings>
std::vector<Setting> settings_of(Settings& settings) {
  detail::SettingCollector collector;
  settings.visit(collector);
  return collector.collected();
}

// Returns the members without a struct to set: each `value` keeps its type and is null.
template <Visited Settings>
std::vector<Setting> settings_without_values() {
  Settings settings;
  std::vector<Setting> members = settings_of(settings);
  for (Setting& member : members) std::visit([](auto& value) { value = nullptr; }, member.value);
  return members;
}

// Returns the setting with that key or alias; null if there is none.
const Setting* find_setting(std::span<const Setting> settings, std::string_view key);

// A key of another program or command. `target` is the setting to set instead, or advice if it has a space.
struct ForeignKey {
  std::string_view key, target;
};

// Sets one member from text. Error messages begin with `owner`:
//   train: batch_size: 'abc' is not a whole number       // the name as given, which may be an alias
//   train: unknown setting 'layrs'; did you mean 'layers'?
// A dotted key below a Spec sets one item of it: "attention.dropout".
void set_setting(std::span<const Setting> settings, std::string_view owner, std::string_view key,
                 std::string_view value, std::span<const ForeignKey> foreign = {});
std::string print_value(const Setting& setting);
// Splits "key=value". Throws if there is no = or no key.
std::pair<std::string, std::string> split_assignment(std::string_view owner, std::string_view text);
// Sets members from a spec's items. A named item comes after positional ones and overrides them.
void read_settings(const Spec& spec, std::span<const Setting> settings);
// Returns the setting that item i of a spec sets, by its key or position; null if there is none.
const Setting* setting_of_item(const Spec& spec, size_t i, std::span<const Setting> settings);
// Returns the spec with current names for aliases of keys and values. The last item of a key stays.
Spec without_aliases(Spec spec, std::span<const Setting> settings);

template <Visited Settings>
void set_setting(Settings& settings, std::string_view owner, std::string_view key, std::string_view value,
                 std::span<const ForeignKey> foreign = {}) {
  const std::vector<Setting> members = settings_of(settings);
  set_setting(std::span<const Setting>(members), owner, key, value, foreign);
}
template <Visited Settings>
void read_settings(const Spec& spec, Settings& settings) {
  const std::vector<Setting> members = settings_of(settings);
  read_settings(spec, std::span<const Setting>(members));
}

using Assignments = std::vector<std::pair<std::string, std::string>>;  // keys and values

// Lists the members with a key, in the order of the visit, for set_setting.
template <Visited Settings>
Assignments list_settings(Settings settings) {
  Assignments all;
  for (const Setting& member : settings_of(settings))
    if (!member.key.empty()) all.emplace_back(member.key, print_value(member));
  return all;
}
// Returns the spec that sets every member: name(key=value, ...).
Spec make_spec(std::string_view name, std::span<const Setting> settings);
template <Visited Settings>
Spec make_spec(std::string_view name, Settings settings) {
  const std::vector<Setting> members = settings_of(settings);
  return make_spec(name, std::span<const Setting>(members));
}

}  // namespace orrery
