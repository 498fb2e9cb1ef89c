// Work and copies in flight. The emulated device does all work when it is queued, but the host may
// read and write only what a GPU allows at that time.
#pragma once

#include <cuda_runtime.h>

namespace cuda_on_cpu {

void record_work(cudaStream_t stream);  // records queued work that the host has not waited for
bool unwaited_work();                   // returns whether this thread has queued work and not waited for it

// A copy between the device and pinned memory. The host must not touch that memory until it has
// waited for the copy: the data have not arrived yet, and a write could replace the data that are
// sent. If the host wrote to it, waiting throws a Fault.
bool is_pinned(const void* data);
void transfer(void* to, const void* from, size_t bytes, bool to_host, cudaStream_t stream);

}  // namespace cuda_on_cpu
