// Plug-ins that this program has loaded.
#pragma once

#include <map>
#include <string>

namespace orrery {

std::map<std::string, std::string> loaded_plugins();  // SHA-256 of each plug-in, by file name

}  // namespace orrery
