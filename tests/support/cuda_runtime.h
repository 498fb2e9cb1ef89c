// CUDA's names for plain C++, as NVIDIA documents them: the language extensions that kernels use
// and the runtime calls of cuda/. The emulated build includes this header instead of NVIDIA's.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "tests/support/cuda_on_cpu.h"

#if defined(__CUDACC__)
#error "nvcc must find NVIDIA's <cuda_runtime.h>, not the emulation's"
#endif

// ---- the language. __shared__ is missing on purpose: kernels call shared_memory<T>().

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
// A launch has only the address of a kernel, so the bounds are encoded as a number of nops before
// it. g++ 12 records their location in a section that fails to link if two files have the same
// kernel; launch_bounds.ld discards that section.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define __launch_bounds__(...)                                                             \
  __attribute__((patchable_function_entry(cuda_on_cpu::encoded_launch_bounds(__VA_ARGS__), \
                                          cuda_on_cpu::encoded_launch_bounds(__VA_ARGS__))))
#else
#define __launch_bounds__(...)
#endif
namespace cuda_on_cpu {
constexpr int encoded_launch_bounds(int threads, int = 0) { return threads / 32 * 4; }
}  // namespace cuda_on_cpu

inline void __syncthreads(cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) { cuda_on_cpu::block_barrier(site); }
inline void __syncwarp(unsigned mask = ~0u, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
  cuda_on_cpu::warp_barrier(mask, site);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
  const unsigned first = cuda_on_cpu::lane_index() & -static_cast<unsigned>(width);
  return cuda_on_cpu::exchange(mask, value, first + static_cast<unsigned>(source % width), site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32,
                  cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
  const unsigned lane = cuda_on_cpu::lane_index(), source = lane ^ static_cast<unsigned>(flip);
  const bool inside = source < (lane & -static_cast<unsigned>(width)) + static_cast<unsigned>(width);
  return cuda_on_cpu::exchange(mask, value, inside ? source : lane, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
  const unsigned lane = cuda_on_cpu::lane_index(), lane_in_group = lane % static_cast<unsigned>(width);
  return cuda_on_cpu::exchange(mask, value, lane_in_group + by < static_cast<unsigned>(width) ? lane + by : lane, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
  cuda_on_cpu::Vote mine{predicate != 0 ? 1u : 0u, 0};
  cuda_on_cpu::warp_operation(mask, cuda_on_cpu::ballot, &mine, site);
  return mine.ballot;
}

// A thread that reads the new value also reads earlier writes of this thread and its block.
inline unsigned atomicInc(unsigned* number, unsigned limit) {
  const std::atomic_ref shared(*number);
  unsigned old = shared.load();
  while (!shared.compare_exchange_weak(old, old >= limit ? 0 : old + 1)) {
  }
  return old;
}
inline void __threadfence() {}  // atomicInc orders all memory accesses

// ---- the runtime. Every call is synchronous: a launch reports the faults of its kernel.

#define CUDART_VERSION 13000

enum cudaError_t {  // NVIDIA's values
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrClockRate = 13 };
enum : unsigned long long { cudaEnableDefault = 0 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0, cudaDriverEntryPointSymbolNotFound = 1 };
enum : unsigned { cudaStreamNonBlocking = 1 };
enum : unsigned { cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount;
};
struct cudaFuncAttributes {
  int maxThreadsPerBlock, ptxVersion;
};
using cudaStream_t = struct cudaStream*;
using cudaEvent_t = struct cudaEvent*;
using cudaGraph_t = struct cudaGraph*;
using cudaGraphExec_t = struct cudaGraphExec*;
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  const cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* recorded, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t recorded, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t recorded);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* found);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMallocHost(void** data, size_t bytes);
cudaError_t cudaFreeHost(void* data);
cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);

namespace cuda_on_cpu {
cudaError_t grant_shared_memory(const void* kernel, int bytes);
cudaError_t attributes(cudaFuncAttributes* attributes, const void* kernel);
struct Parameter {
  const void* data = nullptr;
  size_t bytes = 0;
  const std::type_info* type = nullptr;
};
using Parameters = std::span<const Parameter>;
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, Body body, Parameters parameters);
void count_launch(const cudaLaunchConfig_t& config);

// A capturing stream does not run work; it stores the work for each replay.
bool records(cudaStream_t stream);
void keep_for_replay(cudaStream_t stream, std::function<cudaError_t()> work);
}  // namespace cuda_on_cpu

template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute, int bytes) {
  return cuda_on_cpu::grant_shared_memory(reinterpret_cast<const void*>(kernel), bytes);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return cuda_on_cpu::attributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  cuda_on_cpu::count_launch(*config);
  auto work = [config = *config, kernel, kept = std::tuple<P...>(arguments...)] {
    const auto body = [&] { std::apply(kernel, kept); };
    const auto launch = [&](const P&... p) {
      const cuda_on_cpu::Parameter parameters[] = {{&p, sizeof(P), &typeid(P)}..., {}};
      return cuda_on_cpu::launch(config, reinterpret_cast<const void*>(kernel),
                                 {&body, [](const void* f) { (*static_cast<decltype(&body)>(f))(); }},
                                 {parameters, sizeof...(P)});
    };
    return std::apply(launch, kept);
  };
  if (!cuda_on_cpu::records(config->stream)) return work();
  cuda_on_cpu::keep_for_replay(config->stream, std::move(work));
  return cudaSuccess;
}
