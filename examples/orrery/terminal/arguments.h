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
  std::vector<std::string> words;                                // arguments that do not begin with --
  std::vector<std::pair<std::string, std::string>> assignments;  // in the order given
};

// Accepts `--key=value`, `--key value` and, for a bool setting, `--key`; all arguments after `--`
// are words. Errors begin with `command`. Returns unknown keys unchanged: the caller reports them.
ParsedArguments parse_arguments(std::string_view command, std::span<const std::string> arguments,
                                std::span<const Setting> settings);

// Parses and assigns the settings; returns the words.
std::vector<std::string> read_arguments(std::string_view command, std::span<const std::string> arguments,
                                        std::span<const Setting> settings, std::span<const ForeignKey> foreign = {});

// Returns one line per setting: --key, default, help.
std::string describe(std::span<const Setting> settings);

}  // namespace orrery::program
