#include "models/study/run_log.h"

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/files.h"
#include "models/json.h"

namespace orrery::models {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

std::vector<LogRow> read_run_log(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl", log = read_file(path);
  std::vector<LogRow> rows;
  for (size_t begin = 0, end; (end = log.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string what = text(path, ", row ", rows.size() + 1);
    const Json json = parse_json(std::string_view(log).substr(begin, end - begin), what);
    LogRow row{.step = whole_number_member(json, "step", what), .figures = {}};
    for (const auto& [key, value] : json.items()) {
      if (key == "step" || !(value.is_number() || value.is_null())) continue;
      row.figures[key] = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace orrery::models
