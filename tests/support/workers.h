// OS threads that wait for work until the program ends.
#pragma once

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

// Calls `job` at once on the calling thread and on `helpers` others. Not reentrant.
void run_on_workers(int helpers, Body job);

}  // namespace cuda_on_cpu
