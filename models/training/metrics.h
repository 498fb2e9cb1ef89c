// metrics.jsonl: one JSON object a line, for steps and for validations.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/system/files.h"

namespace orrery::models {

class Metrics {
 public:
  // Opens `folder`/metrics.jsonl; rows of steps beyond `step` are removed first (they will be computed again), and
  // lines that are no rows.
  Metrics(const std::string& folder, int64_t step);
  std::vector<std::string> warnings() const;  // a sentence about such lines, if there were any
  // {"step": 12, "loss": 2.5, ...}; numbers that are whole are written as such.  In the file at once.
  void write(int64_t step, const std::vector<std::pair<std::string, double>>& values);

 private:
  std::string path_;
  std::vector<int64_t> unreadable_;  // lines that are no rows, but for a last one that is cut short
  std::unique_ptr<FileAppender> log_;
};

// Whether the file begins with a row as above, or is empty.
bool is_metrics_file(const std::string& path);

}  // namespace orrery::models
