// Paths below /proc, which a chroot or a container may lack.
#pragma once

#include <string>

namespace orrery {

// Returns `path`. Throws if it is missing: "CONTEXT needs /proc/self/exe, but /proc is not mounted".
std::string proc_path(const std::string& context, const std::string& path);

}  // namespace orrery
