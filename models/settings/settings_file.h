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

// Keys and values for set_setting, in the order of the file.  Each is tried on `scratch`, the members of a settings
// struct that the caller has no other use for, so that a wrong key or value is an Error that names file and line:
//   run.toml:3: unknown key 'layrs'; did you mean 'layers'?
std::vector<std::pair<std::string, std::string>> read_settings_file(const std::string& path,
                                                                    std::span<const Setting> scratch,
                                                                    std::span<const ForeignKey> foreign = {});

// The text of one key at the top of the file; none if there is no such key, or it is no text, or the file is no TOML,
// which read_settings_file tells in a sentence.
std::optional<std::string> value_in_settings_file(const std::string& path, const std::string& key);

// Throws if a value, such as a path, is not UTF-8: every file that settings are written into is. Called at the start.
//   train: --data=f\xff/text.txt is not UTF-8 at byte 1; write it in UTF-8, or rename the file or folder that it names
void check_utf8_settings(std::string_view command, const std::vector<std::pair<std::string, std::string>>& settings);

// What list_settings gave, so that a run can be repeated; whole or not at all.  Its first line says who has written it,
// and a comment names each of the plug-ins, files that the settings are none without.
void write_settings_file(const std::string& path, std::span<const std::pair<std::string, std::string>> settings,
                         std::span<const std::string> plugins = {});
bool is_written_settings_file(const std::string& path);
// The words --plugin=FILE.so, as a shell takes them, that such a file names; none if there is no such file.
std::vector<std::string> plugins_of_settings_file(const std::string& path);
std::string plugin_word(const std::string& plugin);

}  // namespace orrery::models
