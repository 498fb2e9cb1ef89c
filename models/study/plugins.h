// The plug-ins of this program: what each has registered, and which of them a run stands on.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/training/settings.h"

namespace orrery::models {

struct Plugin {
  std::string path;                                        // as it was named
  std::string sha256;                                      // of the file
  std::vector<std::pair<std::string, std::string>> names;  // family and name of what it has registered
  std::vector<std::string> aliases;                        // of these names
};

// load_plugin (engine/base/plugin.h), and it is noted.
const Plugin& load_noted_plugin(const std::string& path);
std::span<const Plugin> noted_plugins();  // in the order in which they were loaded

// Whether those settings name something of the plug-in, or ask for figures among which one is its.
bool stands_on(const TrainSettings& settings, const Plugin& plugin);

}  // namespace orrery::models
