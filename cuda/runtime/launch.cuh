// Kernel launches and shared memory, for every kernel file. In the emulated build <cuda_runtime.h>
// is the header in tests/support, and the same code runs the kernel on the CPU.
//
// From compute capability 9.0 on, blocks of a kernel may start while the previous kernel of the
// stream runs (programmatic dependent launch), so that its launch and set-up take no extra time:
//   wait_for_earlier()   each thread calls it before its first access to device memory. It returns
//                        when all kernels queued before are complete and their writes visible
//   allow_next()         each block calls it after its wait. When all blocks have called it or
//                        ended, blocks of the next kernel start wherever there is room
//
// Why one wait suffices: let K1, K2, ... be the kernels of a stream. The wait of K(n) returns when
// K(n-1) is complete and its writes are visible (PTX ISA, griddepcontrol). K(n-1) completes after
// its own wait has returned, so by induction K1 to K(n-1) are complete. So K(n) may also overwrite
// what they read, and memory that the pool passes to a later kernel is free by the same wait. The
// induction requires that all kernels wait, and all threads, even those without work. Other pairs:
//   kernel after a copy, fill or graph    starts when that is complete: only kernels allow early starts
//   copy, fill, event or graph after a    begins when the kernel is complete, and thus all before it;
//   kernel, and the host's wait for it    none of them has the attribute of an early start
//   kernels of a captured graph           the same: the capture keeps the attribute (CUDA 12.3)
// A kernel starts after all blocks of the previous one have started. So its waiting blocks never
// take the place of blocks that they wait for, and there is no deadlock. But early blocks gather
// where the GPU is idle first, so kernels whose blocks fill a multiprocessor call allow_next()
// after their main loop; in all others the call follows the wait.
#pragma once

#include <cuda_runtime.h>

#include <tuple>

#include "cuda/runtime/runtime.h"

namespace orrery::cuda {

// A launch and its source line, for launch({"map", blocks, threads}, kernel, arguments...).
struct Launch {
  Launch(const char* operation, dim3 blocks, dim3 threads, size_t shared = 0, const char* at_file = __builtin_FILE(),
         int at_line = __builtin_LINE())
      : name(operation), grid(blocks), block(threads), shared_bytes(shared), file(at_file), line(at_line) {}

  const char* name;
  dim3 grid, block;
  size_t shared_bytes;
  const char* file;
  int line;
};

cudaStream_t stream();

// Throws a MachineError unless the launch succeeded. A fault inside the kernel is reported by a
// later call, whose MachineError names this launch as the latest.
void check(cudaError_t result, const Launch& launch);

template <class... P, class... A>
void launch(const Launch& launch, void (*kernel)(P...), const A&... arguments) {
  constexpr size_t granted_to_all = 48 * 1024;
  if (launch.shared_bytes > granted_to_all) {
    const int bytes = static_cast<int>(launch.shared_bytes);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), launch);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = launch.grid;
  config.blockDim = launch.block;
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = stream();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  if (device_properties().launches_early()) config.attrs = &early, config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, P(arguments)...), launch);
}

#if defined(__CUDACC__)
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void allow_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
#else
using cuda_on_cpu::allow_next;
using cuda_on_cpu::wait_for_earlier;
#endif

// A gap between two arrays of shared memory: empty on a GPU, 64 bytes in the emulation, which
// throws if a kernel writes to them (overflow of the array before). Gaps of one layout need
// different numbers, or they would take space on a GPU. A layout T lists its gaps:
//   [[no_unique_address]] SharedGap<0> gap;   static constexpr auto gaps() { return std::tuple{&T::gap}; }
template <int Number>
struct SharedGap {
#if !defined(__CUDACC__)
  alignas(16) unsigned char room[64];
#endif
};

// Returns the block's shared memory as a T, also above 48 KB; the launch must request sizeof(T)
// bytes. In the emulation it is guarded and filled with NaN, so all kernels must use this function.
template <class T>
__device__ T& shared_memory() {
#if defined(__CUDACC__)
  extern __shared__ __align__(1024) unsigned char block_shared_memory[];
  return *reinterpret_cast<T*>(block_shared_memory);
#else
  T& shared = *static_cast<T*>(cuda_on_cpu::shared_memory(sizeof(T)));
  if constexpr (requires { T::gaps(); }) {
    const auto watch = [&](auto... gap) { (cuda_on_cpu::watch_gap(&(shared.*gap), sizeof(shared.*gap)), ...); };
    std::apply(watch, T::gaps());
  }
  return shared;
#endif
}

}  // namespace orrery::cuda
