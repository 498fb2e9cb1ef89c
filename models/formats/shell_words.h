// Quoting of command line arguments for a shell.
#pragma once

#include <string>
#include <vector>

namespace orrery::models {

// Returns the argument as it is, in '...', or as for_bash if a terminal cannot show it.
std::string shell_quoted(const std::string& word);
std::string for_bash(const std::string& word);  // $'...', ASCII only
// Returns "orrery train --out=runs/mine" for these arguments.
std::string command_line(const std::vector<std::string>& words);

}  // namespace orrery::models
