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

// load_plugin (engine/settings/plugin.h), and it is noted.
const Plugin& load_noted_plugin(const std::string& path);
std::span<const Plugin> noted_plugins();  // in the order in which they were loaded
// A command's words with those that load the same plug-ins before it, for another process.
std::vector<std::string> with_plugins(std::vector<std::string> words);

// Whether those settings name something of the plug-in, or ask for figures among which one is its.
bool stands_on(const TrainSettings& settings, const Plugin& plugin);
std::vector<std::string> plugins_of(const TrainSettings& settings);  // the paths of all that it stands on

// The plug-ins that settings.toml of a run's folder names and that are not loaded, in words that say what to do; empty:
// none.
std::string plugins_lacking(const std::string& run);
// make(), which makes something of a run's settings.  Without a plug-in they have names that nobody knows: an Error
// says then which one the run was trained with.
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
