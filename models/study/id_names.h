// Names in ids of runs and in hashes of configs and claims, which files hold. They are computed
// with the names of the first version, so that renamed settings, values and metrics change none.
#pragma once

#include <string>

namespace orrery::models {

// Return the first version's name of a setting, and its text of the setting's value.
std::string key_in_id(const std::string& key);
std::string value_in_id(const std::string& key, const std::string& value);

// Returns a file of settings as JSON with these names in key order: comments, the order of lines
// and renamed settings do not matter.
std::string config_in_id(const std::string& path);
// Returns a claim in this form, with the former names of its metrics.
std::string claim_in_id(const std::string& path);

}  // namespace orrery::models
