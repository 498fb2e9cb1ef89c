// What every kernel file needs: how to launch, and where shared memory comes from.  In the emulated build
// <cuda_runtime.h> is the one in tests/support, and the same lines run the kernel on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <tuple>

#include "cuda/runtime/runtime.h"

namespace orrery::cuda {

// A launch and the line that asked for it: launch({"map", blocks, threads}, kernel, arguments...).
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

// Throws an Error unless the launch succeeded.  A fault inside the kernel comes to light in a later call, which then
// names this launch as the latest.
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
  check(cudaLaunchKernelEx(&config, kernel, P(arguments)...), launch);
}

// Between two arrays of shared memory.  On a card there is nothing; the emulation leaves room that nobody may write to,
// and so sees an array that overflows into the next.  Two of one layout differ in their number, or they would take room
// on a card too; a layout T tells of its gaps:
//   [[no_unique_address]] SharedGap<0> gap;   static constexpr auto gaps() { return std::tuple{&T::gap}; }
template <int Number>
struct SharedGap {
#if !defined(__CUDACC__)
  alignas(16) unsigned char room[64];
#endif
};

// The block's shared memory, laid out as a T; the launch asks for sizeof(T) bytes.  The only way to shared memory: no
// limit at 48 KB, and one place where the emulation can hand out memory that is NaN and guarded.
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
