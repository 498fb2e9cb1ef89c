// Former names of metrics, analyses and presets. They are read for good: in logs, claims, settings
// and on the command line. Only the current names are written and listed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::models {

struct FormerName {
  std::string_view current, former;
};
std::span<const FormerName> former_metrics();  // and analyses, whose names begin those of their metrics
std::span<const FormerName> former_presets();

// Returns the former names of a metric, analysis or preset: the aliases of its entry in a registry.
std::vector<std::string> former_names(std::string_view current);

// Returns a text with current names of metrics in place of former ones. A name begins a word or
// precedes a slash: "mean(top_unit_fraction/*)" for "mean(top_fraction/*)".
std::string with_current_metrics(std::string_view text);
// The reverse, for hashes, which must not change with a name.
std::string with_former_metrics(std::string_view text);

// Returns true if a pattern (fnmatch) matches a metric by its current or its former name.
bool matches_metric(const std::string& pattern, const std::string& name);

}  // namespace orrery::models
