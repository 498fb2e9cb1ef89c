// The part of the CUDA runtime that cuda/ calls.  It refuses what a card refuses, and host and device pointers that are
// mixed up.
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tests/support/copies.h"
#include "tests/support/device_memory.h"

using cuda_on_cpu::DeviceMemory;

std::atomic<int64_t> cuda_on_cpu::copies_to_host = 0;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
  }
  return "cudaErrorUnknown";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }  // every call has returned its own error

cudaError_t cudaGetDeviceCount(int* count) {
  *count = cuda_on_cpu::options.devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cuda_on_cpu::options.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const char name[] = "CUDA emulated on the CPU";
  std::copy_n(name, sizeof(name), properties->name);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static char the_only_stream;
  *stream = reinterpret_cast<cudaStream_t>(&the_only_stream);
  return cuda_on_cpu::options.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (cuda_on_cpu::options.devices == 0) return cudaErrorNoDevice;
  *data = DeviceMemory::Open()->allocate(bytes);
  return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* data) {
  return !data || DeviceMemory::Open()->free(data) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const DeviceMemory::Open memory;
  const auto fits = [&](const void* data, bool device) {
    return device ? memory->holds(data, bytes) : !memory->touches(data, bytes);
  };
  if (!fits(to, to_device) || !fits(from, from_device)) return cudaErrorInvalidValue;
  std::memmove(to, from, bytes);
  if (kind == cudaMemcpyDeviceToHost) ++cuda_on_cpu::copies_to_host;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  const DeviceMemory::Open memory;
  if (!memory->holds(data, bytes)) return cudaErrorInvalidValue;
  std::memset(data, value, bytes);
  return cudaSuccess;
}

namespace cuda_on_cpu {
namespace {

// More shared memory than every kernel gets, by kernel.
class Grants {
 public:
  void set(const void* kernel, size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_[kernel] = bytes;
  }
  bool allow(const void* kernel, size_t bytes) {
    constexpr size_t granted_to_all = 48 * 1024;
    if (bytes <= granted_to_all) return true;
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(kernel);
    return found != bytes_.end() && bytes <= found->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, size_t> bytes_;
};
Grants grants;

}  // namespace

cudaError_t grant_shared_memory(const void* kernel, int bytes) {
  constexpr int most = 227 * 1024;  // of compute capability 9.0
  if (bytes < 0 || bytes > most) return cudaErrorInvalidValue;
  grants.set(kernel, static_cast<size_t>(bytes));
  return cudaSuccess;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, Body body) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) return cudaErrorInvalidConfiguration;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaErrorInvalidConfiguration;
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
  if (!grants.allow(kernel, config.dynamicSmemBytes)) return cudaErrorInvalidValue;
  const DeviceMemory::Open memory;
  run({grid, block, config.dynamicSmemBytes, body});
  return memory->guards_hold() ? cudaSuccess : cudaErrorIllegalAddress;
}

}  // namespace cuda_on_cpu
