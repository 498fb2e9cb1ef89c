#include "models/study/run_log.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/files.h"
#include "models/json.h"

namespace orrery::models {

std::vector<LogRow> read_run_log(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl", log = read_file(path);
  std::vector<LogRow> rows;
  int64_t number = 0;
  size_t end = 0;
  for (size_t at = 0; (end = log.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string where = text(path, ":", ++number);
    const Json json = parse_json(std::string_view(log).substr(at, end - at), where);
    LogRow row{whole_number_member(json, "step", where), {}};
    for (const auto& [key, value] : json.items()) {
      if (key == "step") continue;
      check(value.is_number() || value.is_null(), where, ": '", key, "' must be a number, or null if it is not finite");
      row.figures[key] = value.is_number() && std::isfinite(value.get<double>()) ? value.get<double>() : NAN;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace orrery::models
