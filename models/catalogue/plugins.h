// The loaded plug-ins: names that each has registered, and the plug-ins that a run uses.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/training/settings.h"

namespace orrery::models {

struct Plugin {
  std::string path;                                        // as given
  std::string sha256;                                      // of the file
  std::vector<std::pair<std::string, std::string>> names;  // family and name of each registered entry
  std::vector<std::string> aliases;                        // of these names
};

// Calls load_plugin (engine/settings/plugin.h) and adds the plug-in to noted_plugins().
const Plugin& load_noted_plugin(const std::string& path);
std::span<const Plugin> noted_plugins();  // in the order of loading
// Prepends arguments that load the same plug-ins in another process.
std::vector<std::string> with_plugins(const std::vector<std::string>& words);

// Returns true if the settings name an entry of the plug-in or request one of its figures.
bool stands_on(const TrainSettings& settings, const Plugin& plugin);
std::vector<std::string> plugins_of(const TrainSettings& settings);  // paths of all plug-ins that the settings use

// Returns a message about plug-ins that the run's settings.toml names and that are not loaded;
// empty if there are none.
std::string plugins_lacking(const std::string& run);
// Calls make(), which makes something from a run's settings. If it throws and plug-ins of the run
// are missing, because their names are unknown then, the Error also names those plug-ins.
template <class Make>
auto with_plugins_told(const std::string& run, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    const std::string lacking = plugins_lacking(run);
    if (lacking.empty()) throw;
    fail(error.what(), "; ", lacking);
  }
}

}  // namespace orrery::models
