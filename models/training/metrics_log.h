// metrics.jsonl: one JSON object per line, for steps and for validations.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/system/files.h"

namespace orrery::models {

class MetricsLog {
 public:
  // Opens `folder`/metrics.jsonl; first removes lines that are not rows, and rows of steps beyond
  // `step`, which will be computed again.
  MetricsLog(const std::string& folder, int64_t step);
  std::vector<std::string> warnings() const;  // a message about lines that were not rows, if any
  // Appends {"step": 12, "loss": 2.5, ...} and flushes; integral values are written as integers.
  void write(int64_t step, const std::vector<std::pair<std::string, double>>& values);

 private:
  std::string path_;
  std::vector<int64_t> unreadable_;  // line numbers; a last line that is cut short does not count
  std::unique_ptr<FileAppender> log_;
};

// Returns true if the file begins with such a row or is empty.
bool is_metrics_file(const std::string& path);

}  // namespace orrery::models
