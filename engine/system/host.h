// The machine that a process runs on.
#pragma once

#include <string>
#include <vector>

namespace orrery {

std::string host_name();
std::vector<int> usable_cores();  // numbers of the cores that this process may run on, in order; empty: unknown
int core_count();                 // cores of the machine, used or not

}  // namespace orrery
