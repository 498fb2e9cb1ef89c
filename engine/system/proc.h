// Paths below /proc, which a chroot or a container may lack.
#pragma once

#include <string>

namespace orrery {

// Returns `path`. Throws if it does not exist: "CONTEXT needs /proc/self/exe, and /proc is not mounted ...".
std::string proc_path(const std::string& context, const std::string& path);

}  // namespace orrery
