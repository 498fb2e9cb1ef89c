// The part of the CUDA runtime that cuda/ calls. It rejects all calls that a GPU rejects, and
// mixed-up host and device pointers.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <vector>

#include "tests/support/bank_conflicts.h"
#include "tests/support/device_memory.h"
#include "tests/support/early_launch.h"
#include "tests/support/failing_calls.h"
#include "tests/support/host_copies.h"
#include "tests/support/pending_work.h"
#include "tests/support/sectors.h"

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
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorUnsupportedPtxVersion:
      return "cudaErrorUnsupportedPtxVersion";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
  }
  return "cudaErrorUnknown";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }  // every call returns its own error

cudaError_t cudaGetDeviceCount(int* count) {
  *count = cuda_on_cpu::options.devices;
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = cuda_on_cpu::options.driver;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cuda_on_cpu::options.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}
namespace {
// Maximum in bytes per block: CUDA C++ Programming Guide, specifications per compute capability.
int max_shared_memory() {
  switch (cuda_on_cpu::options.architecture) {
    case 80:
    case 87:
      return 163 * 1024;
    case 90:
    case 100:
      return 227 * 1024;
  }
  return 99 * 1024;
}
}  // namespace
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  const char name[] = "CUDA emulated on the CPU";
  std::copy_n(name, sizeof(name), properties->name);
  properties->totalGlobalMem = static_cast<size_t>(cuda_on_cpu::options.memory);
  properties->sharedMemPerBlockOptin = static_cast<size_t>(max_shared_memory());
  properties->major = cuda_on_cpu::options.architecture / 10;
  properties->minor = cuda_on_cpu::options.architecture % 10;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;  // the emulation has no clock
  return cudaSuccess;
}

// ---- memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = static_cast<size_t>(cuda_on_cpu::options.memory);
  *free = *total - DeviceMemory::Open()->used();
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (cuda_on_cpu::options.devices == 0) return cudaErrorNoDevice;
  *data = cuda_on_cpu::device_allocations.next_fails() ? nullptr : DeviceMemory::Open()->allocate(bytes);
  return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}
// GPU drivers wait for all work here, but need not. So unwaited work of this thread is an error.
cudaError_t cudaFree(void* data) {
  if (data && cuda_on_cpu::unwaited_work()) return cudaErrorIllegalAddress;
  return !data || DeviceMemory::Open()->free(data) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const auto work = [=] {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const DeviceMemory::Open memory;
    const auto fits = [&](const void* data, bool device) {
      return device ? memory->holds(data, bytes) : !memory->touches(data, bytes);
    };
    if (!fits(to, to_device) || !fits(from, from_device)) return cudaErrorInvalidValue;
    cuda_on_cpu::record_work(stream);
    const bool to_host = from_device && !to_device;
    const bool in_flight = to_device != from_device && cuda_on_cpu::is_pinned(to_host ? to : from);
    if (to_host && !in_flight) ++cuda_on_cpu::copies_to_host;
    if (in_flight)
      cuda_on_cpu::transfer(to, from, bytes, to_host, stream);
    else
      std::memmove(to, from, bytes);
    return cudaSuccess;
  };
  if (!cuda_on_cpu::records(stream)) return work();
  cuda_on_cpu::keep_for_replay(stream, work);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  const auto work = [=] {
    const DeviceMemory::Open memory;
    if (!memory->holds(data, bytes)) return cudaErrorInvalidValue;
    cuda_on_cpu::record_work(stream);
    std::memset(data, value, bytes);
    return cudaSuccess;
  };
  if (!cuda_on_cpu::records(stream)) return work();
  cuda_on_cpu::keep_for_replay(stream, work);
  return cudaSuccess;
}

namespace cuda_on_cpu {
namespace {

// Kernels that may use more shared memory than the default of 48 KB, with their limits.
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

// A log for tests/kernel_table.py, written at exit to the file that ORRERY_SHARED_MEMORY names. One
// line per kernel: module, address in it, maximum of shared bytes, transactions of ldmatrix
// (actual, without conflicts), the same for cp.async, 32-byte sectors touched and their minimum.
class SharedMemoryLog {
 public:
  ~SharedMemoryLog() {
    if (!path_) return;
    std::ofstream file(path_);
    for (const auto& [kernel, use] : uses_) {
      Dl_info module;
      if (!dladdr(kernel, &module)) continue;
      const auto address = static_cast<const char*>(kernel) - static_cast<const char*>(module.dli_fbase);
      file << module.dli_fname << '\t' << std::hex << address << std::dec << '\t' << use.bytes;
      for (const uint64_t n : {use.banks.loads, use.banks.min_loads, use.banks.copies, use.banks.min_copies,
                               use.sectors.touched, use.sectors.minimum})
        file << '\t' << n;
      file << '\n';
    }
  }
  void add(const void* kernel, size_t bytes, const BankTraffic& banks, const SectorTraffic& sectors) {
    if (!path_) return;
    const std::lock_guard lock(mutex_);
    Use& use = uses_[kernel];
    use.bytes = std::max(use.bytes, bytes);
    use.banks.loads += banks.loads, use.banks.min_loads += banks.min_loads;
    use.banks.copies += banks.copies, use.banks.min_copies += banks.min_copies;
    use.sectors.touched += sectors.touched, use.sectors.minimum += sectors.minimum;
  }

 private:
  const char* const path_ = std::getenv("ORRERY_SHARED_MEMORY");
  struct Use {
    size_t bytes = 0;
    BankTraffic banks;
    SectorTraffic sectors;
  };
  std::mutex mutex_;
  std::map<const void*, Use> uses_;
};
SharedMemoryLog shared_memory_log;

// Counts the nops before a kernel (cuda_runtime.h). The compiler may add one for alignment.
unsigned max_threads(const void* kernel) {
#if defined(__x86_64__) && !defined(__clang__)
  constexpr unsigned char empty_instruction = 0x90;
  const auto* const begin = static_cast<const unsigned char*>(kernel);
  int count = 0;
  while (count < encoded_launch_bounds(1024) && begin[-1 - count] == empty_instruction) ++count;
  if (count >= encoded_launch_bounds(32)) return static_cast<unsigned>(count / encoded_launch_bounds(32) * 32);
  return 256;  // without bounds nvcc may use 255 of a multiprocessor's 65,536 registers per thread
#else
  return 1024;
#endif
}

}  // namespace

cudaError_t attributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (!options.holds_code) return cudaErrorNoKernelImageForDevice;
  attributes->maxThreadsPerBlock = static_cast<int>(max_threads(kernel));
  attributes->ptxVersion = options.architecture;
  return cudaSuccess;
}

cudaError_t grant_shared_memory(const void* kernel, int bytes) {
  if (bytes < 0 || bytes > max_shared_memory()) return cudaErrorInvalidValue;
  grants.set(kernel, static_cast<size_t>(bytes));
  return cudaSuccess;
}

void check_parameters(Parameters parameters) {
  constexpr size_t max_bytes = 4096;
  size_t bytes = 0;
  for (const Parameter& parameter : parameters) bytes += (parameter.bytes + 7) / 8 * 8;
  if (bytes > max_bytes)
    throw Fault("launch: " + std::to_string(bytes) + " bytes of parameters; kernels of all GPUs take " +
                std::to_string(max_bytes));
}

void count_launch(const cudaLaunchConfig_t& config) {
  ++launches;
  for (unsigned n = 0; n < config.numAttrs; ++n)
    if (config.attrs[n].id == cudaLaunchAttributeProgrammaticStreamSerialization)
      early_launches += config.attrs[n].val.programmaticStreamSerializationAllowed;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, Body body, Parameters parameters) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads > 1024) return cudaErrorInvalidValue;  // as an H200 does
  if (threads == 0 || block.z > 64) return cudaErrorInvalidConfiguration;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaErrorInvalidConfiguration;
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
  if (!options.holds_code) return cudaErrorNoKernelImageForDevice;
  if (threads > max_threads(kernel)) return cudaErrorLaunchOutOfResources;
  if (!grants.allow(kernel, config.dynamicSmemBytes)) return cudaErrorInvalidValue;
  check_parameters(parameters);
  const DeviceMemory::Open memory;
  record_work(config.stream);
  take_bank_traffic(), take_sector_traffic();  // left by a launch that ended with a fault
  run({grid, block, config.dynamicSmemBytes, body});
  latest_bank_traffic = take_bank_traffic();
  latest_sector_traffic = take_sector_traffic();
  shared_memory_log.add(kernel, config.dynamicSmemBytes, latest_bank_traffic, latest_sector_traffic);
  return memory->guards_hold() ? cudaSuccess : cudaErrorIllegalAddress;
}

}  // namespace cuda_on_cpu
