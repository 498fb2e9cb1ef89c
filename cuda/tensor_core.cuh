// Instructions that CUDA C++ has no words for: the only PTX of orrery.  Under the emulation the same functions do what
// the PTX manual says of them.
#pragma once

#include <cuda_runtime.h>

namespace orrery::cuda {

#if !defined(__CUDACC__)
using Site = cuda_on_cpu::Site;
#endif

// Starts a copy from global to shared memory.  The first `valid` of the Bytes (4, 8 or 16) are copied, the others
// become zero; with valid = 0 nothing is read.  Both addresses are multiples of Bytes.
template <int Bytes>
#if defined(__CUDACC__)
__device__ void cp_async(void* to, const void* from, int valid) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const auto global = __cvta_generic_to_global(from);
  if constexpr (Bytes == 16)  // these need not pass through the first-level cache
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(Bytes), "r"(valid)
                 : "memory");
}
#else
void cp_async(void* to, const void* from, int valid, Site site = Site::current()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  cuda_on_cpu::copies().start(to, from, Bytes, static_cast<unsigned>(valid), site);
}
#endif

// The copies that this thread has started since the last commit become a group.
__device__ inline void cp_async_commit() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  cuda_on_cpu::copies().commit();
#endif
}

// Returns when at most InFlight of this thread's groups, the youngest, have not arrived.  What other threads have
// copied is there after their wait and a barrier.
template <int InFlight>
__device__ void cp_async_wait() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(InFlight) : "memory");
#else
  cuda_on_cpu::copies().wait(InFlight);
#endif
}

}  // namespace orrery::cuda
