// What the host has not waited for.  The emulated device does all work when it is queued; what the host may see and
// touch meanwhile is as with a card.
#pragma once

#include <cuda_runtime.h>

namespace cuda_on_cpu {

void note_work(cudaStream_t stream);  // work was queued that nobody has waited for
bool unwaited_work();                 // whether there is any that this thread has queued

// A copy between the device and pinned memory, which the host must leave alone until it has waited for the copy: what
// is on its way to it is not there yet, and what it overwrites would arrive instead of what it sent.  Waiting throws a
// Fault if it has not.
bool is_pinned(const void* data);
void transfer(void* to, const void* from, size_t bytes, bool to_host, cudaStream_t stream);

}  // namespace cuda_on_cpu
