// Runs a compiler without a shell. If this program ends, the compiler and its children end too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

struct CompilerResult {
  std::string output;      // first megabyte of stdout and stderr
  bool succeeded = false;  // exit code 0
  bool in_time = true;     // false: stopped at the limit
};

// `command` is the program's absolute path and its arguments. After `limit` seconds, or if this
// program ends in any way (SIGKILL included), the compiler's process group gets SIGTERM, so that it
// removes its temporary files. Its remaining processes get SIGKILL.
CompilerResult run_compiler(const std::vector<std::string>& command, int64_t limit);

}  // namespace orrery
