// The part of the CUDA runtime that cuda/ calls.  It refuses what a card refuses, and host and device pointers that are
// mixed up.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/support/copies.h"
#include "tests/support/device_memory.h"
#include "tests/support/failing_calls.h"

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
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
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
  properties->totalGlobalMem = static_cast<size_t>(cuda_on_cpu::options.memory);
  properties->sharedMemPerBlockOptin = 227 * 1024;
  properties->major = 9, properties->minor = 0;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;  // there is no clock to speak of
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static char the_only_stream;
  *stream = reinterpret_cast<cudaStream_t>(&the_only_stream);
  return cuda_on_cpu::options.devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

// ---- graphs

struct cudaGraph {
  std::vector<std::function<cudaError_t()>> work;
};
struct cudaGraphExec {
  std::vector<std::function<cudaError_t()>> work;
};
namespace {
std::unique_ptr<cudaGraph> recorded;  // while the stream records
bool spoiled = false;                 // by a call that cannot be recorded

// To wait for a stream that records is to wait for work that has not begun.
cudaError_t refuse_while_recording() {
  if (!recorded) return cudaSuccess;
  spoiled = true;
  return cudaErrorStreamCaptureUnsupported;
}
}  // namespace
namespace cuda_on_cpu {
bool recording_graph() { return recorded != nullptr; }
void keep_for_replay(std::function<cudaError_t()> work) { recorded->work.push_back(std::move(work)); }
}  // namespace cuda_on_cpu

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (recorded) return refuse_while_recording();
  recorded = std::make_unique<cudaGraph>();
  spoiled = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  const std::unique_ptr<cudaGraph> ended = std::move(recorded);
  *graph = nullptr;
  if (!ended) return cudaErrorInvalidValue;
  if (spoiled) return cudaErrorStreamCaptureInvalidated;
  *graph = new cudaGraph(*ended);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* replayable, cudaGraph_t graph, unsigned long long) {
  *replayable = new cudaGraphExec{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t replayable, cudaStream_t) {
  for (const auto& work : replayable->work)
    if (const cudaError_t result = work(); result != cudaSuccess) return result;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replayable) {
  delete replayable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

// ---- waiting.  What is copied to pinned memory arrives when the host has waited for it, not before.

namespace {
struct Arrival {
  void* to;
  std::vector<unsigned char> bytes;
};
std::mutex arrivals_mutex;
std::vector<Arrival> arrivals;
std::map<const void*, size_t> pinned;  // blocks and their sizes

bool is_pinned(const void* data) {
  const std::lock_guard lock(arrivals_mutex);
  const auto next = pinned.upper_bound(data);
  if (next == pinned.begin()) return false;
  const auto& [begin, size] = *std::prev(next);
  return static_cast<const unsigned char*>(data) < static_cast<const unsigned char*>(begin) + size;
}
void arrive_later(void* to, const void* from, size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(from);
  const std::lock_guard lock(arrivals_mutex);
  arrivals.push_back({to, {first, first + bytes}});
  std::memset(to, 0xff, bytes);
}
cudaError_t arrive() {
  const std::lock_guard lock(arrivals_mutex);
  for (const Arrival& one : arrivals) std::memcpy(one.to, one.bytes.data(), one.bytes.size());
  arrivals.clear();
  return cudaSuccess;
}
}  // namespace

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  const cudaError_t refused = refuse_while_recording();
  return refused == cudaSuccess ? arrive() : refused;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  static char any_event;  // all that is queued is done, so one event is as good as another
  *event = reinterpret_cast<cudaEvent_t>(&any_event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return refuse_while_recording(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return arrive(); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }

// ---- memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = static_cast<size_t>(cuda_on_cpu::options.memory);
  *free = *total - DeviceMemory::Open()->used();
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  *data = cuda_on_cpu::pinned_allocations.next_fails() ? nullptr : std::malloc(bytes);
  if (!*data) return cudaErrorMemoryAllocation;
  const std::lock_guard lock(arrivals_mutex);
  pinned[*data] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  {
    const std::lock_guard lock(arrivals_mutex);
    pinned.erase(data);
  }
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (cuda_on_cpu::options.devices == 0) return cudaErrorNoDevice;
  *data = cuda_on_cpu::device_allocations.next_fails() ? nullptr : DeviceMemory::Open()->allocate(bytes);
  return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* data) {
  return !data || DeviceMemory::Open()->free(data) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  const auto work = [=] {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const DeviceMemory::Open memory;
    const auto fits = [&](const void* data, bool device) {
      return device ? memory->holds(data, bytes) : !memory->touches(data, bytes);
    };
    if (!fits(to, to_device) || !fits(from, from_device)) return cudaErrorInvalidValue;
    const bool waits = from_device && !to_device && !is_pinned(to);
    if (waits) ++cuda_on_cpu::copies_to_host;
    if (from_device && !to_device && !waits)
      arrive_later(to, from, bytes);
    else
      std::memmove(to, from, bytes);
    return cudaSuccess;
  };
  if (!cuda_on_cpu::recording_graph()) return work();
  cuda_on_cpu::keep_for_replay(work);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  const auto work = [=] {
    const DeviceMemory::Open memory;
    if (!memory->holds(data, bytes)) return cudaErrorInvalidValue;
    std::memset(data, value, bytes);
    return cudaSuccess;
  };
  if (!cuda_on_cpu::recording_graph()) return work();
  cuda_on_cpu::keep_for_replay(work);
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

// The most that each kernel has asked for, for tests/kernel_table.py: written as the program ends to the file that
// ORRERY_SHARED_MEMORY names, a line of the kernel's module, its address there and the bytes.
class SharedMemoryLog {
 public:
  ~SharedMemoryLog() {
    if (!path_) return;
    std::ofstream file(path_);
    for (const auto& [kernel, bytes] : most_) {
      Dl_info module;
      if (!dladdr(kernel, &module)) continue;
      const auto address = static_cast<const char*>(kernel) - static_cast<const char*>(module.dli_fbase);
      file << module.dli_fname << '\t' << std::hex << address << std::dec << '\t' << bytes << '\n';
    }
  }
  void add(const void* kernel, size_t bytes) {
    if (!path_) return;
    const std::lock_guard lock(mutex_);
    size_t& most = most_[kernel];
    most = std::max(most, bytes);
  }

 private:
  const char* const path_ = std::getenv("ORRERY_SHARED_MEMORY");
  std::mutex mutex_;
  std::map<const void*, size_t> most_;
};
SharedMemoryLog shared_memory_log;

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
  shared_memory_log.add(kernel, config.dynamicSmemBytes);
  const DeviceMemory::Open memory;
  run({grid, block, config.dynamicSmemBytes, body});
  return memory->guards_hold() ? cudaSuccess : cudaErrorIllegalAddress;
}

}  // namespace cuda_on_cpu
