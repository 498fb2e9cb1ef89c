// The rows of a run's metrics.jsonl, read without a JSON library, which takes seconds to compile.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "models/study/run_log.h"
#include "tests/support/contents.h"

namespace orrery::testing {

// Returns the metrics of each row; "step" is one of them.
inline std::vector<std::map<std::string, double>> logged_rows(const std::string& run) {
  std::vector<std::map<std::string, double>> rows;
  models::RunLog::of_run(run).each([&](const models::LogRow& row) {
    rows.push_back(row.metrics);
    rows.back()["step"] = static_cast<double>(row.step);
  });
  return rows;
}

// Returns the rows as text, without the members that depend on the clock.
inline std::vector<std::string> rows_without_time(const std::string& run) {
  std::vector<std::string> rows;
  std::istringstream lines(contents(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line); rows.push_back(line))
    for (const char* const key : {",\"step_ms\":", ",\"tokens_per_second\":", ",\"images_per_second\":"})
      if (const size_t at = line.find(key); at != line.npos) line.erase(at, line.find_first_of(",}", at + 1) - at);
  return rows;
}

}  // namespace orrery::testing
