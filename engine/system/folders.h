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
bool is_there(const std::string& path);  // also a link that leads nowhere
// Removes a file, or a folder with all that is in it; a path without either is no error. Links are not followed.
void remove_with_contents(const std::string& path);

}  // namespace orrery
