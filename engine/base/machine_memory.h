// What the machine still has for this process.
#pragma once

#include <cstdint>

namespace orrery {

// Bytes that can still be allocated before the system refuses or ends the process: free memory and swap, the limits of
// the control groups it runs in, and its limit of addresses (ulimit -v).  What cannot be read does not limit.
int64_t available_memory();
int64_t resident_memory();  // bytes of memory that this process has now; 0 if that cannot be read

}  // namespace orrery
