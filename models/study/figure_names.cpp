#include "models/study/figure_names.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "engine/settings/registry.h"
#include "engine/types/check.h"
#include "engine/types/wording.h"
#include "models/former_names.h"

namespace orrery::models {
namespace {

struct NumbersInOrder {  // strverscmp(3)
  bool operator()(const std::string& a, const std::string& b) const { return ::strverscmp(a.c_str(), b.c_str()) < 0; }
};
using Names = std::set<std::string, NumbersInOrder>;

}  // namespace

std::vector<std::string> figure_names(const RunLog& log) {
  Names names;
  log.each([&](const LogRow& row) {
    for (const auto& [name, value] : row.figures)
      if (!names.contains(name)) names.insert(name);
  });
  return {names.begin(), names.end()};
}

std::vector<std::string> fitting_figures(const std::string& command, const std::vector<std::string>& names,
                                         const std::string& patterns) {
  const std::vector<std::string> asked = items_of(patterns);
  if (asked.empty()) return names;
  Names fitting;
  for (const std::string& pattern : asked) {
    bool fits = false;
    for (const std::string& name : names)
      if (matches_metric(pattern, name)) fits = true, fitting.insert(name);
    if (fits) continue;
    const std::string meant = nearest(pattern, names);
    fail(command, ": no metric matches '", pattern, "'; ",
         !meant.empty() ? "did you mean '" + meant + "'?" : "the logged metrics are " + join(names));
  }
  return {fitting.begin(), fitting.end()};
}

bool tells_time(const std::string& figure) {
  return figure == "mfu" || figure.starts_with("step_ms") || figure.ends_with("_per_second");
}

}  // namespace orrery::models
