// Opens files that this program writes in place, such as locks and logs.
#pragma once

#include <string>

namespace orrery {

// Returns a descriptor, or -1 with errno, like open(2). Throws if the path is a symbolic link,
// which could lead to any file if others may write to the folder.
int open_unlinked(const std::string& path, int flags);

}  // namespace orrery
