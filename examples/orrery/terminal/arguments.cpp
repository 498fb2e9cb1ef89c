#include "examples/orrery/terminal/arguments.h"

#include <algorithm>
#include <iterator>

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "models/tasks/base/task.h"

namespace orrery::program {

ParsedArguments parse_arguments(std::string_view command, std::span<const std::string> arguments,
                                std::span<const Setting> settings) {
  ParsedArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      parsed.positional.insert(parsed.positional.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                               arguments.end());
      break;
    }
    if (!argument.starts_with("-") || (!argument.starts_with("--") && file_exists(argument))) {  // -x.cpp is a file
      parsed.positional.push_back(argument);
      continue;
    }
    check_usage(argument.starts_with("--") && argument.size() > 2, command, ": '", argument,
                "' is not of the form --key=value; orrery ", command, " --help lists the settings");
    if (const size_t equals = argument.find('='); equals != std::string::npos) {
      parsed.assignments.emplace_back(argument.substr(2, equals - 2), argument.substr(equals + 1));
      continue;
    }
    const std::string key = argument.substr(2);
    const Setting* const setting = find_setting(settings, key);
    const bool value_follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (setting && std::holds_alternative<bool*>(setting->value)) {
      parsed.assignments.emplace_back(key, "yes");
    } else if (value_follows) {
      parsed.assignments.emplace_back(key, arguments[++i]);
    } else {
      const std::string usual = setting ? print_value(*setting) : "";
      const bool is_path = std::ranges::find(models::paths_of_data, key) != std::end(models::paths_of_data);
      check_usage(!setting, command, ": --", key, " needs a value, as in --", key, "=",
                  !usual.empty() ? usual
                  : is_path      ? "FILE"
                                 : "VALUE");
      parsed.assignments.emplace_back(key, "");
    }
  }
  return parsed;
}

std::vector<std::string> read_arguments(std::string_view command, std::span<const std::string> arguments,
                                        std::span<const Setting> settings, std::span<const ForeignKey> foreign) {
  const ParsedArguments parsed = parse_arguments(command, arguments, settings);
  for (const auto& [key, value] : parsed.assignments) set_setting(settings, command, key, value, foreign);
  return parsed.positional;
}

namespace {

// Returns the range of a number: "[0, 1)", "0 or [257, 1e6]"; empty for other types.
std::string range_of(const Setting& setting) {
  const bool number = std::holds_alternative<int64_t*>(setting.value) ||
                      std::holds_alternative<double*>(setting.value) ||
                      std::holds_alternative<LearnableNumber*>(setting.value);
  if (!number) return "";
  const Limits& l = setting.limits;
  const bool zero = l.low == 0 && l.low_allowed && l.smallest_magnitude > tiny;
  return text(zero            ? "0 or ["
              : l.low_allowed ? "["
                              : "(",
              print_number(zero ? l.smallest_magnitude : l.low), ", ", print_number(l.high),
              l.high_allowed ? "]" : ")");
}

SettingHelp help_of(const Setting& setting, const std::string& value) {
  const bool is_switch = std::holds_alternative<bool*>(setting.value);
  SettingHelp help{setting.key,           setting.section, value,                  setting.help,   range_of(setting),
                   setting.limits.family, setting.aliases, setting.limits.choices, setting.common, is_switch};
  if (is_switch) help.choices = {"yes", "no"};
  return help;
}

}  // namespace

std::vector<SettingHelp> describe(std::span<const Setting> settings,
                                  std::span<const std::pair<std::string, std::string>> values) {
  std::vector<SettingHelp> all;
  for (const auto& [key, value] : values)
    if (const Setting* const setting = find_setting(settings, key)) all.push_back(help_of(*setting, value));
  return all;
}

std::vector<SettingHelp> describe(std::span<const Setting> settings, std::span<const ForeignKey> foreign) {
  std::vector<SettingHelp> all;
  for (const Setting& setting : settings) {
    if (setting.key.empty()) continue;
    SettingHelp help = help_of(setting, print_value(setting));
    for (const ForeignKey& other : foreign)
      if (other.target == setting.key) help.aliases.emplace_back(other.key);
    all.push_back(std::move(help));
  }
  return all;
}

std::vector<SettingHelp> with_rest(std::vector<SettingHelp> own, const std::vector<SettingHelp>& rest) {
  const size_t count = own.size();
  for (const SettingHelp& setting : rest) {
    const auto is_same = [&](const SettingHelp& each) { return each.key == setting.key; };
    if (std::any_of(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count), is_same)) continue;
    own.push_back(setting);
    own.back().common = false;
  }
  return own;
}

const SettingHelp* find_help(const std::vector<SettingHelp>& settings, std::string_view key) {
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const SettingHelp& s) {
    return s.key == key || std::find(s.aliases.begin(), s.aliases.end(), key) != s.aliases.end();
  });
  return found == settings.end() ? nullptr : &*found;
}

}  // namespace orrery::program
