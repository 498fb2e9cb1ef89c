// Folders and what lies below them.
#pragma once

#include <string>
#include <vector>

namespace orrery {

// Returns the files in a folder and in the folders below it, in the order of their names. Hidden ones are left out, and
// so is a link to a folder that contains the link, because following it has no end.
std::vector<std::string> files_below(const std::string& folder);
bool is_hidden(const std::string& path);  // its name begins with a dot
// Returns whether the folder `outer` is `inner` or contains it, links followed.
bool contains_folder(const std::string& outer, const std::string& inner);

}  // namespace orrery
