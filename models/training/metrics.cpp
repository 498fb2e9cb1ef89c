#include "models/training/metrics.h"

#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "engine/base/files.h"

namespace orrery::models {

Metrics::Metrics(const std::string& folder, int64_t step) : path_(folder + "/metrics.jsonl") {
  std::string kept;
  if (std::ifstream in(path_); in.good())
    for (std::string line; std::getline(in, line);) {
      const auto row = nlohmann::json::parse(line, nullptr, false);  // a crash may have cut the last line short
      if (!row.is_discarded() && row.value("step", step + 1) <= step) kept += line + "\n";
    }
  write_file_atomically(path_, kept);
  out_.open(path_, std::ios::app);
  check(out_.good(), "metrics: cannot write ", path_);
}

void Metrics::write(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  nlohmann::ordered_json row = {{"step", step}};
  for (const auto& [name, value] : values) row[name] = value;
  out_ << row.dump() << std::endl;
  check(out_.good(), "metrics: cannot write ", path_, "; is the disk full?");
}

}  // namespace orrery::models
