// Whether a run that was interrupted came to what it would have come to: two checkpoints and two logs, byte for byte.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/study/run_log.h"

namespace orrery::models {

struct FileComparison {
  std::string name;
  uint64_t bytes = 0;      // of the first one's; of the second one's if the first has no such file
  std::string difference;  // what differs first, in words; empty: every byte is the same
};
// Every file that one of the checkpoints has, by name.  What differs is told by the tensor and its number, by the
// member of state.json, else by the byte:
//   blocks.0.norm.weight: number 3 is 0.5 and 0.25; 1 of 26 tensors differs
std::vector<FileComparison> compare_checkpoints(const std::string& first, const std::string& second);

// The first row that is another one, in words; empty: all have the same steps and the same figures to the bit, but for
// how long something took.
std::string log_difference(const RunLog& first, const RunLog& second);

}  // namespace orrery::models
