// Words of a command as a shell takes them.
#pragma once

#include <string>
#include <vector>

namespace orrery::models {

// The word as it is, or in '...', or as for_bash writes it if a terminal could not show it (shown_text.h).
std::string quoted_for_a_shell(const std::string& word);
std::string for_bash(const std::string& word);  // $'...', ASCII alone
// "orrery train --out=runs/mine", of these words.
std::string command_line(const std::vector<std::string>& words);

}  // namespace orrery::models
