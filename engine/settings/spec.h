// Values of settings as text, and their limits.
//
//   spec  = name ["(" item {"," item} ")"]        softmax(qk_norm=layer, soft_cap=30)
//   item  = [key "="] value                       positional items first, in the order of the settings' visit
//   value = number | yes | no | name | spec
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery {

// One value: a name with its items. Numbers, yes and no are names without items.
struct Spec {
  struct Item;
  std::string name;
  std::vector<Item> items;
  bool operator==(const Spec& other) const;
};
struct Spec::Item {
  std::string key;  // empty: positional
  Spec value;
  bool operator==(const Item& other) const = default;
};

Spec parse_spec(std::string_view text);  // errors contain the position
std::string print(const Spec& spec);     // parse_spec(print(spec)) == spec
std::ostream& operator<<(std::ostream& out, const Spec& spec);
// Sets the item at a dotted path, such as "span.R"; adds the last name of the path if it is new.
void set_item(Spec& spec, std::string_view path, Spec value);

// Numbers as text. Error messages begin with `what`: "batch_size: 'abc' is not a whole number".
int64_t parse_whole_number(std::string_view what, std::string_view text);  // also 1e6
double parse_number(std::string_view what, std::string_view text);         // also inf, never nan
bool parse_yes_or_no(std::string_view what, std::string_view text);        // yes, no, true, false
std::string print_number(double x);                                        // the shortest text that reads back as x
std::optional<double> number_in(std::string_view text);                    // never throws; none: not a number

// A number that training may change: `0.5`, `learned` (from its default), `learned(0.5)`.
struct LearnableNumber {
  double initial = 0;
  bool learned = false;
  bool is_one() const { return !learned && initial == 1; }
  bool operator==(const LearnableNumber&) const = default;
};

// Allowed values of a setting besides its type. A number must be finite in any case. The
// library's own numbers all have a low and a high limit (a test checks this), which rejects a
// typo before it costs memory or hours.
struct Limits {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_allowed = true, high_allowed = true;
  double smallest_magnitude = 0;          // except 0: f32 loses smaller numbers
  std::vector<std::string> choices = {};  // allowed texts; empty: any
  std::string family = {};                // registry of a spec's name, such as "attention"
  // Former values and the values that replace them; also for values inside a spec.
  std::map<std::string, std::string, std::less<>> aliases = {};
};
constexpr double unlimited = std::numeric_limits<double>::infinity(), tiny = 1e-30;
inline Limits at_least(double low, double high = unlimited) { return {.low = low, .high = high}; }
inline Limits above(double low, double high = unlimited, double smallest = tiny) {
  return {.low = low, .high = high, .low_allowed = false, .smallest_magnitude = smallest};
}
inline Limits between(double low, double high) { return {.low = low, .high = high}; }  // [low, high]
inline Limits fraction() { return {.low = 0, .high = 1, .high_allowed = false}; }      // [0, 1)
inline Limits zero_or(double smallest, double high) { return {.low = 0, .high = high, .smallest_magnitude = smallest}; }
// Each choice may be followed by aliases after bars, as in the name of a setting: "groups|by_group".
Limits one_of(const std::vector<std::string>& choices);
Limits with_aliases(const std::vector<std::string>& choices);  // any text; only these choices have aliases
inline Limits name_of_family(std::string family) { return {.family = std::move(family)}; }

namespace detail {
std::string shortened(std::string_view text);                   // shortened for error messages
std::vector<std::string> split_at_bars(std::string_view text);  // "a|b" -> {"a", "b"}
// Replaces aliases by their choices.
void replace_aliases(std::string& word, const Limits& limits);
void replace_aliases(Spec& spec, const Limits& limits);
}  // namespace detail

}  // namespace orrery
