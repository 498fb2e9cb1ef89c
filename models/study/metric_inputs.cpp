#include "models/study/metric_inputs.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/settings/settings_table.h"
#include "models/study/metric_names.h"

namespace orrery::models {
namespace {

// Reads the table `key`, if there is one, into `settings`; returns its location, else "".
template <class Settings>
std::string read_table(const std::string& path, const toml::table& claim, const char* key, Settings& settings) {
  const toml::node* const node = claim.get(key);
  if (!node) return "";
  const std::string location = toml_location(path, *node);
  check(node->is_table(), location, ": ", key, " must be a table, as in [", key, "]");
  Settings scratch;
  const std::vector<Setting> members = settings_of(settings);
  for (const auto& [name, value] : settings_in_table(*node->as_table(), path, settings_of(scratch)))
    set_setting(members, path, name, value);
  return location;
}

void check_trained(const Claim& claim, const std::string& metrics) {
  check(claim.kind == Claim::Kind::trained, claim.metric_locations[0], ": metrics of ", metrics,
        " require kind = \"trained\", but this claim is ", name(claim.kind));
}

void read_example(Claim& claim, const toml::table& table) {
  claim.example_location = read_table(claim.path, table, "example", claim.example);
  const bool is_there = !claim.example_location.empty();
  check(!is_there || claim.example.given(), claim.example_location,
        ": [example] has no input; give text, image or source");
  const std::vector<std::string> analyses = claim.analyses();
  check(!is_there || !analyses.empty(), claim.example_location,
        ": [example] is not used, because no metric is of an analysis, such as heads/induction/*; leave it out");
  if (analyses.empty()) return;
  check_trained(claim, "the analysis '" + analyses[0] + "'");
  check(is_there, claim.path, ": the metric is of the analysis '", analyses[0],
        "', which requires an input; give one, as in [example] and text = \"...\"");
}

void read_few_shot(Claim& claim, const toml::table& table) {
  FewShotInput& input = claim.few_shot;
  input.location = read_table(claim.path, table, "few_shot", input);
  const bool is_there = !input.location.empty(), is_used = claim.measures_few_shot();
  check(!is_there || is_used, input.location,
        ": [few_shot] is not used, because no metric is few_shot/NAME, such as mean(few_shot/*); leave it out");
  check(is_there || !is_used, claim.path,
        ": a metric is few_shot/NAME, which requires data; give them, as in [few_shot] and data = \"images/mnist\"");
  if (!is_used) return;
  check_trained(claim, "[few_shot]");
  std::set<std::string> names;
  for (const std::string& set : input.sets())
    check(names.insert(FewShotInput::name_of(set)).second, input.location, ": [few_shot]: two sets of data are named ",
          FewShotInput::name_of(set), "; give sets whose last folders differ");
  check(!names.empty(), input.location,
        ": [few_shot] has no data; give sets, as in data = \"images/mnist, images/flowers\"");
  std::vector<std::string> metrics;
  for (const std::string& name : names) metrics.push_back(few_shot_metric + name);
  for (size_t m = 0; m < claim.metrics.size(); ++m)
    for (const std::string& pattern : claim.metrics[m].patterns())
      if (pattern.starts_with(few_shot_metric)) matching_metrics(claim.metric_locations[m], metrics, pattern);
}

}  // namespace

std::vector<std::string> FewShotInput::sets() const { return split_list(data); }

std::string FewShotInput::name_of(const std::string& set) {
  std::filesystem::path path(set);
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  return path.filename().string();
}

bool Claim::measures_few_shot() const {
  return std::any_of(metrics.begin(), metrics.end(), [](const MetricExpression& metric) {
    const std::vector<std::string> patterns = metric.patterns();
    return std::any_of(patterns.begin(), patterns.end(),
                       [](const std::string& pattern) { return pattern.starts_with(few_shot_metric); });
  });
}

void read_inputs(Claim& claim, const toml::table& table) {
  read_example(claim, table);
  read_few_shot(claim, table);
}

}  // namespace orrery::models
