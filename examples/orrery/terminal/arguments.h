// Command line arguments to settings and values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/settings/config.h"

namespace orrery::program {

struct ParsedArguments {
  std::vector<std::string> positional;                           // arguments that do not begin with --
  Assignments assignments;                                       // in the order given
};

// Accepts `--key=value`, `--key value` and, for a bool setting, `--key`; all arguments after `--`
// are positional. Errors begin with `command`. Returns unknown keys unchanged for the caller.
ParsedArguments parse_arguments(std::string_view command, std::span<const std::string> arguments,
                                std::span<const Setting> settings);

// Parses and assigns the settings; returns the positional arguments.
std::vector<std::string> read_arguments(std::string_view command, std::span<const std::string> arguments,
                                        std::span<const Setting> settings, std::span<const ForeignKey> foreign = {});

// Data on a setting for help, completion and the man page; empty texts: none.
struct SettingHelp {
  std::string key, section = {}, value = {}, help = {}, range = {}, family = {};  // value: the default
  std::vector<std::string> aliases = {}, choices = {};                            // choices: the allowed values
  bool common = true, is_switch = false;                                          // is_switch: `--key` alone means yes
};

// Returns the settings that have a key. `foreign`: keys of other programs, which count as aliases.
std::vector<SettingHelp> describe(std::span<const Setting> settings, std::span<const ForeignKey> foreign = {});
// Returns those of `settings` that are in `values`, pairs of a key and its default. The pointers in
// `settings` may be null.
std::vector<SettingHelp> describe(std::span<const Setting> settings,
                                  std::span<const std::pair<std::string, std::string>> values);
// Adds settings of another command, which only the long help lists, except keys that `own` has.
std::vector<SettingHelp> with_rest(std::vector<SettingHelp> own, const std::vector<SettingHelp>& rest);
const SettingHelp* find_help(const std::vector<SettingHelp>& settings, std::string_view key);  // null: none

}  // namespace orrery::program
