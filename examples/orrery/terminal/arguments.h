// From words on the command line to keys and values.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/settings/config.h"

namespace orrery::program {

struct ParsedArguments {
  std::vector<std::string> words;                                // whatever does not begin with --
  std::vector<std::pair<std::string, std::string>> assignments;  // in the order given
};

// Takes `--key=value`, `--key value`, and for a setting that is yes or no also `--key`; behind a lone `--` are words.
// Errors begin with `command`.
// Keys that no setting has come back as they are: the caller assigns them and knows the nearest one.
ParsedArguments parse_arguments(std::string_view command, std::span<const std::string> arguments,
                                std::span<const Setting> settings);

// The same, assigned at once; returns the words.
std::vector<std::string> read_arguments(std::string_view command, std::span<const std::string> arguments,
                                        std::span<const Setting> settings, std::span<const ForeignKey> foreign = {});

// One line for each setting: --key, its default, its meaning.
std::string describe(std::span<const Setting> settings);

}  // namespace orrery::program
