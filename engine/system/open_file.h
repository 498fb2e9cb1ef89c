// Opens files that this program writes in place, such as locks and logs.
#pragma once

#include <string>

namespace orrery {

// Returns a descriptor, or -1 with errno, as open does. A symbolic link of that name is not
// followed, because in a folder that others may write to it could lead to any file: it is an Error.
int open_unlinked(const std::string& path, int flags);

}  // namespace orrery
