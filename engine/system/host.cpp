#include "engine/system/host.h"

#include <sched.h>
#include <unistd.h>

#include <climits>

namespace orrery {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;  // more than CPU_SETSIZE cores
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

int core_count() { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace orrery
