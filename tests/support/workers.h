// OS threads that wait for work and live as long as the program.
#pragma once

#include "tests/support/cuda_on_cpu.h"

namespace cuda_on_cpu {

// Calls `job` on the calling thread and on `helpers` others at once.  One call at a time.
void run_on_workers(int helpers, Body job);

}  // namespace cuda_on_cpu
