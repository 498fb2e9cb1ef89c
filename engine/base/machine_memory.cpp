#include "engine/base/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "engine/base/sizes.h"

namespace orrery {
namespace {

constexpr int64_t unknown = largest_size;

// The number behind a word in a file of lines "word number ..."; -1 if there is none.
int64_t number_behind(const std::string& path, const std::string& word) {
  std::ifstream in(path);
  std::string name;
  int64_t number = 0;
  while (in >> name) {
    if (name == word && in >> number) return number;
    in.clear();
    in.ignore(4096, '\n');
  }
  return -1;
}
// The number that a file holds; -1 if it holds none ("max"), or one so large that it means none.
int64_t number_in(const std::string& path) {
  std::ifstream in(path);
  int64_t number = 0;
  return in >> number && number < unknown ? number : -1;
}

int64_t free_in_machine() {
  const int64_t available = number_behind("/proc/meminfo", "MemAvailable:"),
                swap = number_behind("/proc/meminfo", "SwapFree:");
  return available < 0 ? unknown : 1024 * (available + std::max<int64_t>(0, swap));
}

// What is left of a group's limit.  File pages count as used there but are given up when memory is short.
int64_t left_in_group(const std::string& folder, const char* limit_file, const char* use_file, const char* pages) {
  const int64_t limit = number_in(folder + limit_file), use = number_in(folder + use_file);
  if (limit < 0 || use < 0) return unknown;
  const int64_t given_up = std::max<int64_t>(0, number_behind(folder + "/memory.stat", pages));
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, use - given_up));
}

// Of this process's groups, from its own up to the root: the least that any leaves.
int64_t free_in_groups() {
  int64_t least = unknown;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "0::/path", or of version 1 "4:memory:/path"
    const size_t first = line.find(':'), second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && controllers != "memory") continue;
    const std::string root = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      if (path == "/") path.clear();
      least = std::min(least, version_2 ? left_in_group(root + path, "/memory.max", "/memory.current", "inactive_file")
                                        : left_in_group(root + path, "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                                        "total_inactive_file"));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

int64_t pages(int column) {  // of /proc/self/statm: 0 addresses in use, 1 in memory
  std::ifstream in("/proc/self/statm");
  int64_t number = 0;
  for (int i = 0; i <= column; ++i) in >> number;
  return in ? number * sysconf(_SC_PAGESIZE) : 0;
}

int64_t free_addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unknown;
  return std::max<int64_t>(0, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, unknown)) - pages(0));
}

}  // namespace

int64_t available_memory() { return std::min({free_in_machine(), free_in_groups(), free_addresses()}); }
int64_t resident_memory() { return pages(1); }

}  // namespace orrery
