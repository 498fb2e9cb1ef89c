// Code shared by settings and claims: checked TOML in its order, and tables of settings.
#pragma once

#include <toml++/toml.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/settings/config.h"

namespace orrery::models {

// Reads a file as a table. Errors begin with its path and the line.
toml::table read_toml(const std::string& path);

// Returns the members in the order of the file; toml++ sorts a table by its keys.
std::vector<std::pair<std::string, const toml::node*>> members_in_order(const toml::table& table);

std::string toml_location(const std::string& path, const toml::node& node);  // run.toml:3

// Returns keys and values of a table; keys of inner tables have dots, as in settings_file.h.
Assignments settings_in_table(const toml::table& table, const std::string& path, std::span<const Setting> scratch,
                              std::span<const ForeignKey> foreign = {});

}  // namespace orrery::models
