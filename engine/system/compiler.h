// Runs a compiler by its arguments, without a shell, and ends it and all processes that it has
// started together with this program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

struct Compiled {
  std::string output;  // of both streams, the first megabyte
  bool well = false;   // exit code 0
  bool in_time = true;
};

// `command`: the program's absolute path and its arguments. After `limit` seconds, and when this
// program ends in any way (a signal, SIGKILL included), the compiler's process group gets SIGTERM,
// so that its temporary files are removed, and what is left of the group SIGKILL.
Compiled run_compiler(const std::vector<std::string>& command, int64_t limit);

}  // namespace orrery
