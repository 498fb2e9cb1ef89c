// The scheduler (cuda_on_cpu.cpp) as barriers use it: the running CUDA thread waits, and wakes others.
#pragma once

#include "tests/support/site.h"

namespace cuda_on_cpu {

unsigned running_thread();   // its index in the block
void park(Site site);        // runs other threads until one wakes this one
void wake(unsigned thread);  // lets a parked thread run again
void pause();                // lets the threads that are ready run, in the order of `options`

// Returns true if the instruction at this site must do nothing: an injected fault.
bool is_dropped(Site site);

}  // namespace cuda_on_cpu
