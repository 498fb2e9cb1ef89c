// Folders and the files in them.
#pragma once

#include <string>
#include <vector>

namespace orrery {

// Returns the files in a folder and its subfolders, in the order of their names. It skips hidden
// ones and links to a folder that contains the link, because following these never ends.
std::vector<std::string> files_below(const std::string& folder);
bool is_hidden(const std::string& path);  // the name begins with a dot
// Returns true if the folder `outer` is `inner` or contains it; follows links.
bool contains_folder(const std::string& outer, const std::string& inner);
bool path_exists(const std::string& path);  // true also for a broken link
// Removes a file, or a folder with its content; a missing path is not an error. Follows no links.
void remove_with_contents(const std::string& path);

}  // namespace orrery
