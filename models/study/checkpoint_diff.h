// Comparison of a resumed run with an uninterrupted one: checkpoints and logs, bit for bit.
#pragma once

#include <string>
#include <vector>

#include "models/study/run_log.h"

namespace orrery::models {

struct FileComparison {
  std::string name;
  uint64_t bytes = 0;      // of the first file; of the second if the first does not exist
  std::string difference;  // first difference, as text; empty: identical bytes
};
// Compares all files of both checkpoints, by name. Locates a difference by tensor and element, by
// member of a JSON file, else by byte:
//   blocks.0.norm.weight: number 3 is 0.5 and 0.25; 1 of 26 tensors differs
std::vector<FileComparison> compare_checkpoints(const std::string& first, const std::string& second);

// Returns the first differing row as text. Empty: steps and metrics, except timings, are identical.
std::string log_difference(const RunLog& first, const RunLog& second);

}  // namespace orrery::models
