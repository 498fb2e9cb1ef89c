#include "models/study/metric_names.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "engine/settings/registry.h"
#include "engine/types/check.h"
#include "engine/types/format.h"
#include "models/former_names.h"

namespace orrery::models {
namespace {

struct NumbersInOrder {  // strverscmp(3)
  bool operator()(const std::string& a, const std::string& b) const { return ::strverscmp(a.c_str(), b.c_str()) < 0; }
};
using Names = std::set<std::string, NumbersInOrder>;

}  // namespace

std::vector<std::string> metric_names(const RunLog& log) {
  Names names;
  log.each([&](const LogRow& row) {
    for (const auto& [name, value] : row.metrics)
      if (!names.contains(name)) names.insert(name);
  });
  return {names.begin(), names.end()};
}

std::vector<std::string> matching_metrics(const std::string& command, const std::vector<std::string>& names,
                                          const std::string& patterns) {
  const std::vector<std::string> selected = split_list(patterns);
  if (selected.empty()) return names;
  Names matching;
  for (const std::string& pattern : selected) {
    bool matches = false;
    for (const std::string& name : names)
      if (matches_metric(pattern, name)) matches = true, matching.insert(name);
    if (matches) continue;
    const std::string meant = nearest(pattern, names);
    fail(command, ": no metric matches '", pattern, "'; ",
         !meant.empty() ? "did you mean '" + meant + "'?" : "the logged metrics are " + join(names));
  }
  return {matching.begin(), matching.end()};
}

bool is_timing(const std::string& metric) {
  return metric == "mfu" || metric.starts_with("step_ms") || metric.ends_with("_per_second");
}

}  // namespace orrery::models
