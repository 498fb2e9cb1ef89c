// A source line of a kernel, and the error that names it.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>

namespace cuda_on_cpu {

struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  friend bool operator==(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || !std::strcmp(a.file, b.file));
  }
};
inline std::string text(Site site) { return std::string(site.file) + ":" + std::to_string(site.line); }

// A bug in a kernel that hangs or gives undefined results on a GPU.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
[[noreturn]] inline void stop(const std::string& message) { throw Fault(message); }

}  // namespace cuda_on_cpu
