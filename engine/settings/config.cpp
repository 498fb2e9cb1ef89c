#include "engine/settings/config.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "engine/settings/registry.h"
#include "engine/types/ascii.h"
#include "engine/types/usage_error.h"

namespace orrery {
namespace {

using detail::shortened;

constexpr double max_exact = 9007199254740992.0;  // 2^53: every whole number up to here is a double

// Parse a text as the type of the member. Error messages begin with `what`.
int64_t read_value(std::string_view what, std::string_view text, const int64_t&) {
  return parse_whole_number(what, text);
}
double read_value(std::string_view what, std::string_view text, const double&) { return parse_number(what, text); }
bool read_value(std::string_view what, std::string_view text, const bool&) { return parse_yes_or_no(what, text); }
std::string read_value(std::string_view, std::string_view text, const std::string&) { return std::string(text); }

Spec read_value(std::string_view what, std::string_view text, const Spec&) {
  try {
    return parse_spec(text);
  } catch (const Error& error) {
    fail(what, ": ", error.what());
  }
}

LearnableNumber read_value(std::string_view what, std::string_view text, const LearnableNumber& before) {
  if (const std::optional<double> x = number_in(text)) return {*x, false};
  const Spec spec = read_value(what, text, Spec());
  const bool form =
      spec.name == "learned" && spec.items.size() <= 1 && (spec.items.empty() || spec.items[0].key.empty());
  check(form, what, ": '", shortened(text), "' is invalid; use a number, learned or learned(NUMBER)");
  return {spec.items.empty() ? before.initial : parse_number(what, print(spec.items[0].value)), true};
}

std::vector<double> read_value(std::string_view what, std::string_view text, const std::vector<double>&) {
  std::string_view rest = trimmed(text);
  if (rest == "list") return {};  // the form inside a spec: list(1, 2), or list if it is empty
  if (rest.starts_with("list(") && rest.ends_with(")")) rest = rest.substr(5, rest.size() - 6);
  std::vector<double> numbers;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    numbers.push_back(parse_number(what, rest.substr(0, comma)));
    check(comma != rest.size() - 1, what, ": '", text, "' ends with a comma; remove it");
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return numbers;
}

std::string print_member(int64_t x) { return std::to_string(x); }
std::string print_member(double x) { return print_number(x); }
std::string print_member(bool x) { return x ? "yes" : "no"; }
std::string print_member(const std::string& x) { return x; }
std::string print_member(const Spec& x) { return print(x); }
std::string print_member(const LearnableNumber& x) {
  return x.learned ? "learned(" + print_number(x.initial) + ")" : print_number(x.initial);
}
std::string print_member(const std::vector<double>& x) {
  std::vector<std::string> numbers;
  for (const double each : x) numbers.push_back(print_number(each));
  return join(numbers);
}

void check_number(std::string_view what, double x, const Limits& limits, const std::string& printed) {
  check(std::isfinite(x), what, " is ", printed, "; it must be a finite number");
  check(limits.low_allowed ? x >= limits.low : x > limits.low, what, " is ", printed, "; it must be ",
        limits.low_allowed ? "at least " : "above ", print_number(limits.low));
  check(limits.high_allowed ? x <= limits.high : x < limits.high, what, " is ", printed, "; it must be ",
        limits.high_allowed ? "at most " : "below ", print_number(limits.high));
  check(x == 0 || std::abs(x) >= limits.smallest_magnitude, what, " is ", printed, "; it must be ",
        limits.low < 0 || (limits.low == 0 && limits.low_allowed) ? "0 or at least " : "at least ",
        print_number(limits.smallest_magnitude), limits.low < 0 ? " in magnitude" : "");
}
void check_number(std::string_view what, double x, const Limits& limits) {
  check_number(what, x, limits, print_number(x));
}
void check_limits(std::string_view what, int64_t x, const Limits& limits) {
  check_number(what, static_cast<double>(x), limits, std::to_string(x));
}
void check_limits(std::string_view what, double x, const Limits& limits) { check_number(what, x, limits); }
void check_limits(std::string_view what, const LearnableNumber& x, const Limits& limits) {
  check_number(what, x.initial, limits);
}
void check_limits(std::string_view what, const std::vector<double>& x, const Limits& limits) {
  for (const double each : x) check_number(what, each, limits);
}
void check_limits(std::string_view, bool, const Limits&) {}
void check_choice(std::string_view what, const std::string& word, const Limits& limits) {
  if (limits.choices.empty() || std::find(limits.choices.begin(), limits.choices.end(), word) != limits.choices.end())
    return;
  detail::fail_unknown(what, word, limits.choices, limits.aliases);
}
void check_limits(std::string_view what, const std::string& x, const Limits& limits) { check_choice(what, x, limits); }
void check_limits(std::string_view what, const Spec& x, const Limits& limits) { check_choice(what, x.name, limits); }

// `key`: the name by which the setting is given, for error messages.
void assign(const Setting& setting, std::string_view owner, std::string_view key, std::string_view value) {
  const std::string what = text(owner, ": ", key);
  std::visit(
      [&](auto* member) {
        if constexpr (std::is_same_v<decltype(member), int64_t*>)  // a limit is a clearer error than the type
          if (const std::optional<double> x = number_in(value); x && std::isfinite(*x) && std::abs(*x) > max_exact)
            check_number(what, *x, setting.limits, std::string(trimmed(value)));
        auto read = read_value(what, value, *member);
        if constexpr (requires { detail::replace_aliases(read, setting.limits); })
          detail::replace_aliases(read, setting.limits);
        check_limits(what, read, setting.limits);
        *member = std::move(read);
      },
      setting.value);
}

std::vector<std::string> keys_of(std::span<const Setting> settings) {
  std::vector<std::string> keys;
  for (const Setting& setting : settings)
    if (!setting.key.empty()) keys.push_back(setting.key);
  return keys;
}

[[noreturn]] void fail_unknown_key(std::span<const Setting> settings, std::string_view owner, std::string_view key) {
  std::vector<std::string> keys = keys_of(settings);
  const std::string message = text(owner, ": unknown setting '", shortened(key), "'; ");
  const std::string_view group = key.substr(0, key.find('.') + 1);  // such as losses., if the group exists
  const auto outside = [&](const std::string& own) { return !own.starts_with(group); };
  if (!std::all_of(keys.begin(), keys.end(), outside)) std::erase_if(keys, outside);
  for (const std::string& own : keys)  // a known name without its group
    if (own.size() > key.size() && own.ends_with(key) && own[own.size() - key.size() - 1] == '.')
      fail(message, "did you mean '", own, "'?");
  if (const std::string meant = nearest(key, keys); !meant.empty()) fail(message, "did you mean '", meant, "'?");
  if (keys.empty()) fail(message, "available: none");
  fail(message, "available: ", join(keys));
}

void set_member(std::span<const Setting> settings, std::string_view owner, std::string_view key, std::string_view value,
                std::span<const ForeignKey> foreign) {
  if (const Setting* const setting = find_setting(settings, key)) return assign(*setting, owner, key, value);
  for (const ForeignKey& other : foreign) {
    if (other.key != key) continue;
    check(other.target.find(' ') == std::string_view::npos, owner, ": unknown setting '", key, "'; ", other.target);
    return set_member(settings, owner, other.target, value, {});
  }
  for (size_t dot = key.rfind('.'); dot != std::string_view::npos && dot > 0; dot = key.rfind('.', dot - 1)) {
    const Setting* const outer = find_setting(settings, key.substr(0, dot));
    if (!outer || !std::holds_alternative<Spec*>(outer->value)) continue;
    const std::string what = text(owner, ": ", key);
    return set_item(*std::get<Spec*>(outer->value), key.substr(dot + 1), read_value(what, value, Spec()));
  }
  fail_unknown_key(settings, owner, key);
}

}  // namespace

void detail::SettingCollector::add(std::string_view key, decltype(Setting::value) value, std::string_view help,
                                   Limits limits) {
  const std::vector<std::string> names = split_at_bars(key);
  Setting setting{names[0].empty() ? "" : prefix_ + names[0], {}, value, std::string(help), std::move(limits)};
  for (size_t i = 1; i < names.size(); ++i) setting.aliases.push_back(prefix_ + names[i]);
  setting.section = section_;
  own_.push_back(settings.size());
  settings.push_back(std::move(setting));
}

void detail::SettingCollector::include(std::vector<Setting> members) {
  for (Setting& member : members) {
    if (member.section.empty()) member.section = section_;
    settings.push_back(std::move(member));
  }
}

std::vector<Setting> detail::SettingCollector::collected() {
  if (!marks_common_)
    for (const size_t i : own_) settings[i].common = true;
  return std::move(settings);
}

void set_setting(std::span<const Setting> settings, std::string_view owner, std::string_view key,
                 std::string_view value, std::span<const ForeignKey> foreign) {
  as_usage([&] { set_member(settings, owner, key, value, foreign); });
}

const Setting* find_setting(std::span<const Setting> settings, std::string_view key) {
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const Setting& s) {
    return (s.key == key && !key.empty()) || std::find(s.aliases.begin(), s.aliases.end(), key) != s.aliases.end();
  });
  return found == settings.end() ? nullptr : &*found;
}

std::string print_value(const Setting& setting) {
  return std::visit([](const auto* member) { return print_member(*member); }, setting.value);
}

std::pair<std::string, std::string> split_assignment(std::string_view owner, std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view key = trimmed(text.substr(0, equals));
  check(equals != std::string_view::npos && !key.empty(), owner, ": '", text, "' must have the form key=value");
  return {std::string(key), std::string(trimmed(text.substr(equals + 1)))};
}

void read_settings(const Spec& spec, std::span<const Setting> settings) {
  for (size_t i = 0; i < spec.items.size(); ++i) {
    const Spec::Item& item = spec.items[i];
    if (!item.key.empty()) {
      set_setting(settings, spec.name, item.key, print(item.value));
      continue;
    }
    check_usage(i < settings.size(), spec.name, ": takes ",
                settings.empty() ? "no settings"
                                 : text("at most ", settings.size(), settings.size() == 1 ? " setting" : " settings"),
                "; leave out '", print(item.value), "'",
                settings.empty() ? "" : "; available: " + join(keys_of(settings)));
    const Setting& setting = settings[i];
    const std::string& key = setting.key.empty() ? setting.aliases.at(0) : setting.key;
    as_usage([&] { assign(setting, spec.name, key, print(item.value)); });
  }
}

const Setting* setting_of_item(const Spec& spec, size_t i, std::span<const Setting> settings) {
  const std::string& key = spec.items[i].key;
  if (!key.empty()) return find_setting(settings, key);
  return i < settings.size() ? &settings[i] : nullptr;
}

Spec without_aliases(Spec spec, std::span<const Setting> settings) {
  std::vector<Spec::Item> items;
  for (size_t i = 0; i < spec.items.size(); ++i) {
    Spec::Item& item = spec.items[i];
    const Setting* const setting = setting_of_item(spec, i, settings);
    if (setting) detail::replace_aliases(item.value, setting->limits);
    if (setting && !item.key.empty()) {
      item.key = setting->key;
      std::erase_if(items, [&](const Spec::Item& before) { return before.key == item.key; });
    }
    items.push_back(std::move(item));
  }
  spec.items = std::move(items);
  return spec;
}

Spec make_spec(std::string_view name, std::span<const Setting> settings) {
  Spec spec{std::string(name), {}};
  for (const Setting& setting : settings) {
    if (setting.key.empty()) continue;
    std::string value = print_value(setting);
    if (std::holds_alternative<std::vector<double>*>(setting.value))
      value = value.empty() ? "list" : "list(" + value + ")";
    spec.items.push_back({setting.key, read_value(text(name, ": ", setting.key), value, Spec())});
  }
  return spec;
}

}  // namespace orrery
