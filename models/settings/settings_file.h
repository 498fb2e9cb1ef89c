// Settings as a TOML file: the same keys and values as on the command line.
//
//   steps = 2000
//   attention = "softmax(dropout=0.1)"                      # a spec as text,
//   feed_forward = { name = "dense", activation = "relu" }  # or as a table with a name
//   [optimizer]                                             # a table without one changes parts: optimizer.weight_decay
//   weight_decay = 0.05
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/settings/config.h"

namespace orrery::models {

// Returns keys and values for set_setting, in the order of the file. Sets each on `scratch`, the
// members of a settings struct without another use, so that a wrong key or value throws Error with
// file and line:
Assignments read_settings_file(const std::string& path, std::span<const Setting> scratch,
                               std::span<const ForeignKey> foreign = {});

// Returns the name of the setting that a key sets: an alias and a key of another program stand for
// it, also before a dot. Unknown keys stay.
std::string canonical_key(std::span<const Setting> settings, const std::string& key,
                          std::span<const ForeignKey> foreign = {});
// Returns a text with the canonical keys of its assignments: "batch_size=2 width=16" for
// "batch=2 width=16".
std::string with_canonical_keys(const std::string& text, std::span<const Setting> settings,
                                std::span<const ForeignKey> foreign = {});

// Returns the text of a top-level key, yes or no for true or false, or nothing if the key is
// missing or another value, or if the file is not TOML, which read_settings_file reports.
std::optional<std::string> value_in_settings_file(const std::string& path, const std::string& key);

// Throws if a value, such as a path, is not UTF-8, as settings files must be. Call it first:
//   train: the value of --data=f\xff/text.txt is not valid UTF-8 at byte 1; rename the file or folder of that ...
void check_utf8_settings(std::string_view command, const Assignments& settings);

// Writes the result of list_settings, whole or not at all, so that a run can be repeated. The first
// line marks it as orrery's; comments name the plug-ins without which the settings are invalid.
void write_settings_file(const std::string& path, std::span<const std::pair<std::string, std::string>> settings,
                         std::span<const std::string> plugins = {});
bool is_written_settings_file(const std::string& path);  // by its first line
// Returns the arguments --plugin=FILE.so, quoted for a shell, of such a file; empty without it.
std::vector<std::string> plugins_of_settings_file(const std::string& path);
std::string plugin_argument(const std::string& plugin);  // --plugin=FILE.so

}  // namespace orrery::models
