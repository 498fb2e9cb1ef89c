#include "engine/system/machine_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "engine/system/files.h"
#include "engine/types/format.h"
#include "engine/types/machine_error.h"
#include "engine/types/sizes.h"

namespace orrery {
namespace {

constexpr int64_t unknown = max_elements;

std::string_view current_advice = "use a smaller batch or context, a smaller model, or less data";

// Returns the text of a kernel file; empty if it is missing or unreadable.
std::string content_of(const std::string& path) {
  try {
    return file_exists(path) ? read_file(path) : "";
  } catch (const Error&) {
    return {};
  }
}
// Returns the whole number at the start of a text, after spaces; -1 if there is none.
int64_t leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t number = 0;
  return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc() ? number : -1;
}
// Returns the number after `word` in a file of lines "word number ..."; -1 if there is none.
int64_t number_after(const std::string& path, const std::string& word) {
  const std::string text = "\n" + content_of(path);
  const size_t line = text.find("\n" + word + " ");
  return line == std::string::npos ? -1 : leading_number(std::string_view(text).substr(line + 1 + word.size()));
}
// Returns the number in a file; -1 for no number ("max") or one so large that it means no limit.
int64_t number_in(const std::string& path) {
  const int64_t number = leading_number(content_of(path));
  return number < unknown ? number : -1;
}

int64_t free_in_machine() {
  const int64_t available = number_after("/proc/meminfo", "MemAvailable:"),
                swap = number_after("/proc/meminfo", "SwapFree:");
  return available < 0 ? unknown : 1024 * (available + std::max<int64_t>(0, swap));
}

// Returns the bytes left under a group's limit. File pages count as used, but the kernel frees them
// when memory is short, except mapped ones. `total` is the prefix of names in memory.stat.
int64_t left_in_group(const std::string& folder, const char* limit_file, const char* use_file, const std::string& total,
                      const char* mapped) {
  const int64_t limit = number_in(folder + limit_file), use = number_in(folder + use_file);
  if (limit < 0 || use < 0) return unknown;
  const auto pages = [&](const std::string& name) {
    return std::max<int64_t>(0, number_after(folder + "/memory.stat", total + name));
  };
  const int64_t reclaimable = std::max<int64_t>(0, pages("inactive_file") + pages("active_file") - pages(mapped));
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, use - reclaimable));
}

// Returns the least memory left in any control group of this process, up to the root.
int64_t free_in_groups() {
  int64_t smallest = unknown;
  const std::string groups = content_of("/proc/self/cgroup");
  for (size_t begin = 0, end = 0; begin < groups.size(); begin = end + 1) {
    end = std::min(groups.find('\n', begin), groups.size());
    const std::string line = groups.substr(begin, end - begin);  // "0::/path"; version 1: "4:memory:/path"
    const size_t first = line.find(':'), second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && controllers != "memory") continue;
    const std::string root = version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      if (path == "/") path.clear();
      const std::string group = root + path;
      smallest =
          std::min(smallest, version_2 ? left_in_group(group, "/memory.max", "/memory.current", "", "file_mapped")
                                       : left_in_group(group, "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                                       "total_", "mapped_file"));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return smallest;
}

int64_t pages(int column) {  // bytes; columns of /proc/self/statm: 0 addresses in use, 1 resident
  const std::string text = content_of("/proc/self/statm");
  size_t at = 0;
  for (int i = 0; i < column && at != std::string::npos; ++i) at = text.find(' ', at + 1);
  const int64_t number = at == std::string::npos ? -1 : leading_number(std::string_view(text).substr(at));
  return std::max<int64_t>(0, number) * sysconf(_SC_PAGESIZE);
}

int64_t free_addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return unknown;
  return std::max<int64_t>(0, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, unknown)) - pages(0));
}

}  // namespace

int64_t available_memory() { return std::min({free_in_machine(), free_in_groups(), free_addresses()}); }
int64_t resident_memory() { return pages(1); }

std::string_view out_of_memory_advice() noexcept { return current_advice; }
void set_out_of_memory_advice(std::string_view advice) { current_advice = advice; }

void check_memory(std::string_view what, double bytes, std::string_view advice) {
  constexpr double small = 1e6, reserved_bytes = 8e6;
  if (bytes < small) return;
  const auto available = static_cast<double>(available_memory());
  if (bytes + reserved_bytes <= available) return;
  throw MachineError(text(what, " needs about ", in_megabytes(bytes + reserved_bytes), " of memory, but only ",
                          in_megabytes(std::floor(available / 1e6) * 1e6), " are free; ", advice));
}

void release_pages(void* data, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(data),
             first = (begin + page - 1) / page * page, last = (begin + static_cast<uintptr_t>(bytes)) / page * page;
  // A refusal costs memory, nothing else.
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace orrery
