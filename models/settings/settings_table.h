// What files of settings and of claims have in common: TOML that was checked, in its order, and tables of settings.
#pragma once

#include <toml++/toml.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/settings/config.h"

namespace orrery::models {

// A file as a table.  Errors begin with its path and the line.
toml::table read_toml(const std::string& path);
// The same in one form, as JSON in the order of its keys: comments and the order of lines make no difference.
std::string what_toml_says(const std::string& path);

// toml++ orders a table by its keys; the file's order is the one that was meant.
std::vector<std::pair<std::string, const toml::node*>> members_in_order(const toml::table& table);

std::string toml_place(const std::string& path, const toml::node& node);  // run.toml:3

// Keys and values of a table, those of tables in it with dots, as settings_file.h says.
std::vector<std::pair<std::string, std::string>> settings_in_table(const toml::table& table, const std::string& path,
                                                                   std::span<const Setting> scratch,
                                                                   std::span<const ForeignKey> foreign = {});

}  // namespace orrery::models
