// Transaction barriers in shared memory (PTX mbarrier), of compute capability 9.0: threads wait for
// arrivals of other threads and for copies to shared memory (tile_copies.cuh), while the rest of the
// block continues. The emulation (tests/support/arrivals.h) follows the PTX manual.
//
// A barrier counts phases from 0. A phase is complete after `arrivals` arrivals and after as many
// bytes of copies as its arrivals expect; the next phase then begins.
//   init(arrivals)         by one thread, which then calls barriers_initialized(); a __syncthreads() follows
//   arrive()               arrives in the current phase. Writes and reads before it are done for the threads that wait
//   expect(bytes)          arrives, and lets the phase wait for this many bytes of copies as well
//   wait(parity)           returns when the phase of this parity is complete. A thread waits for each phase in turn, so
//                          with 0, 1, 0, ...; before phase 0 is complete, a wait with 1 returns at once
//   barriers_initialized() shows the initialization to copies
//
// Named barriers 1 to 15 (PTX bar; 0 is __syncthreads), for whole warps. Each completes when `threads` threads, a
// multiple of 32, have called one of these, and is then used again:
//   named_sync(barrier, threads)    waits until the barrier completes
//   named_arrive(barrier, threads)  does not wait
//
//   elected()                       returns true in one lane of a warp, the same each time; called by all 32 lanes
#pragma once

#include "cuda/matmul/tensor_core.cuh"

// An instruction of code for 90a; kernels in code for other architectures never reach it.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ORRERY_90A(...) asm volatile(__VA_ARGS__)
#else
#define ORRERY_90A(...)
#endif

namespace orrery::cuda {

struct TransactionBarrier {
  uint64_t state;

#if defined(__CUDACC__)
  __device__ void init(int arrivals) {
    ORRERY_90A("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    ORRERY_90A("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  __device__ void expect(int bytes) {
    ORRERY_90A("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
               : "memory");
  }
  __device__ void wait(unsigned parity) {
    ORRERY_90A(
        "{.reg .pred complete; again: mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1; "
        "@!complete bra again;}" ::"r"(shared_address(this)),
        "r"(parity)
        : "memory");
  }
#else
  void init(int arrivals, Site site = Site::current()) { cuda_on_cpu::arrivals().init(this, arrivals, site); }
  void arrive(Site site = Site::current()) { cuda_on_cpu::arrivals().arrive(this, 0, site); }
  void expect(int bytes, Site site = Site::current()) { cuda_on_cpu::arrivals().arrive(this, bytes, site); }
  void wait(unsigned parity, Site site = Site::current()) { cuda_on_cpu::arrivals().wait(this, parity, site); }
#endif
};

// A stage of a ring of buffers, and the parity of its phase: its reader waits for the barrier `full` with this parity,
// its writer for `empty` with the other one.
template <int Stages>
struct PipelineStage {
  int index = 0;
  unsigned parity = 0;
  __device__ void advance() {
    index = index + 1 == Stages ? 0 : index + 1;
    parity ^= index == 0;
  }
};

#if defined(__CUDACC__)

__device__ inline void barriers_initialized() { ORRERY_90A("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void named_sync(int barrier, int threads) {
  ORRERY_90A("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int barrier, int threads) {
  ORRERY_90A("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline bool elected() {
  int is_elected = 0;
  ORRERY_90A("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.s32 %0, 1, 0, p;}" : "=r"(is_elected)::"memory");
  return is_elected;
}

#else

inline void barriers_initialized(Site site = Site::current()) { cuda_on_cpu::arrivals().show(site); }
inline void named_sync(int barrier, int threads, Site site = Site::current()) {
  cuda_on_cpu::named_barriers().meet(barrier, threads, true, site);
}
inline void named_arrive(int barrier, int threads, Site site = Site::current()) {
  cuda_on_cpu::named_barriers().meet(barrier, threads, false, site);
}
inline bool elected(Site site = Site::current()) {
  bool is_elected = false;
  cuda_on_cpu::warp_operation(~0u, cuda_on_cpu::elect, &is_elected, site);
  return is_elected;
}

#endif

}  // namespace orrery::cuda
