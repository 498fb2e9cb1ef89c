// `orrery help`, `orrery COMMAND --help` and the data on commands that completion uses.
#pragma once

#include <string>
#include <vector>

#include "examples/orrery/commands/commands.h"

namespace orrery::program {

const Command* find_command(const std::string& name);  // null: there is none
std::vector<std::string> command_names();  // in the order of the general help

std::string general_help();   // of `orrery --help`
std::string general_notes();  // exit codes, ways to help, plug-ins
// The short form lists common settings only, if a command has many.
std::string help_of(const Command& command, const Arguments& given, bool all);

// `orrery help [COMMAND [KEY ...] | KEY | NAME] [--key=value ...]`
int print_help(const Arguments& arguments);

}  // namespace orrery::program
