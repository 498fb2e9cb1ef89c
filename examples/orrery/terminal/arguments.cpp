#include "examples/orrery/terminal/arguments.h"

#include "engine/system/files.h"
#include "engine/types/usage_error.h"
#include "examples/orrery/terminal/table.h"

namespace orrery::program {

ParsedArguments parse_arguments(std::string_view command, std::span<const std::string> arguments,
                                std::span<const Setting> settings) {
  ParsedArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      parsed.words.insert(parsed.words.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!argument.starts_with("-") || (!argument.starts_with("--") && file_exists(argument))) {  // -x.cpp is a file
      parsed.words.push_back(argument);
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
      check_usage(!setting, command, ": --", key, " needs a value, as in --", key, "=",
                  setting ? print_value(*setting) : "");
      parsed.assignments.emplace_back(key, "");
    }
  }
  return parsed;
}

std::vector<std::string> read_arguments(std::string_view command, std::span<const std::string> arguments,
                                        std::span<const Setting> settings, std::span<const ForeignKey> foreign) {
  const ParsedArguments parsed = parse_arguments(command, arguments, settings);
  for (const auto& [key, value] : parsed.assignments) set_setting(settings, command, key, value, foreign);
  return parsed.words;
}

namespace {

std::string range_of(const Setting& setting) {  // range of a number: " [0, 1)", " 0 or [257, 1e6]"
  const bool number = std::holds_alternative<int64_t*>(setting.value) ||
                      std::holds_alternative<double*>(setting.value) ||
                      std::holds_alternative<LearnableNumber*>(setting.value);
  if (!number) return "";
  const Limits& l = setting.limits;
  if (l.low == 0 && l.low_allowed && l.smallest > tiny)
    return text(" 0 or [", print_number(l.smallest), ", ", print_number(l.high), l.high_allowed ? "]" : ")");
  return text(l.low_allowed ? " [" : " (", print_number(l.low), ", ", print_number(l.high), l.high_allowed ? "]" : ")");
}

}  // namespace

std::string describe(std::span<const Setting> settings) {
  Table table({"", "default (-: none)", ""}, "lll");
  for (const Setting& setting : settings) {
    if (setting.key.empty()) continue;
    const std::string value = print_value(setting);
    table.add({"--" + setting.key, value.empty() ? "-" : value, setting.help + range_of(setting)});
  }
  return table.print();
}

}  // namespace orrery::program
