#include "cuda/runtime.h"

#include <string_view>

#include "cuda/launch.cuh"

namespace orrery::cuda {
namespace {

// Kernels run after their launch has returned: what is known when a later call reports a fault.
class LatestLaunch {
 public:
  void set(const Launch& launch) {
    const std::lock_guard lock(mutex_);
    launch_ = launch;
  }
  Launch get() {
    const std::lock_guard lock(mutex_);
    return launch_;
  }

 private:
  std::mutex mutex_;
  Launch launch_{"", 0, 0, 0, "", 0};
};
LatestLaunch& latest_launch() {
  static LatestLaunch latest;
  return latest;
}

std::string number(const dim3& d) {
  std::string text = std::to_string(d.x);
  if (d.y > 1 || d.z > 1) text += " x " + std::to_string(d.y);
  if (d.z > 1) text += " x " + std::to_string(d.z);
  return text;
}
// "cuda/attend.cuh:88", wherever the sources were compiled.
std::string place(std::string_view file, int line) {
  const size_t folder = file.rfind("/cuda/");
  if (folder != file.npos) file.remove_prefix(folder + 1);
  return std::string(file) + ":" + std::to_string(line);
}
std::string shape(const Launch& launch) {
  return "launched with " + number(launch.grid) + " blocks of " + number(launch.block) +
         (launch.shared_bytes ? " and " + std::to_string(launch.shared_bytes) + " bytes of shared memory" : "");
}

bool no_device(cudaError_t result) { return result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver; }

void check(cudaError_t result, const char* operation, int line = __builtin_LINE()) {
  if (result == cudaSuccess) return;
  std::string message = std::string(operation) + ": ";
  if (no_device(result))
    message += std::string("no GPU can be used (") + cudaGetErrorName(result) + "); is its driver installed?";
  else
    message += cudaGetErrorName(result) + (" at " + place(__FILE__, line));
  if (const Launch latest = latest_launch().get(); latest.line)
    message += "; the latest kernel was " + std::string(latest.name) + " at " + place(latest.file, latest.line) + ", " +
               shape(latest) + "; with CUDA_LAUNCH_BLOCKING=1 a fault is reported by its own launch";
  throw Error(message);
}

struct Scratch {
  std::mutex mutex;
  void* data = nullptr;
  int64_t bytes = 0;
};
// Never destroyed: at exit the driver may be gone before us.
Scratch& scratch() {
  static Scratch* const the_one = new Scratch;
  return *the_one;
}

}  // namespace

void check(cudaError_t result, const Launch& launch) {
  if (result == cudaSuccess) return latest_launch().set(launch);
  throw Error(std::string(launch.name) + ": " + cudaGetErrorName(result) + " at " + place(launch.file, launch.line) +
              ", " + shape(launch));
}

cudaStream_t stream() {
  static const cudaStream_t the_one = [] {
    cudaStream_t made;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "start");
    return made;
  }();
  return the_one;
}

int device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  cudaGetLastError();  // forgotten, or the next call would report it
  if (!no_device(result)) check(result, "device count");
  return 0;
}

std::string device_name() {
  int device = 0;
  check(cudaGetDevice(&device), "device name");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "device name");
  return properties.name;
}

void* allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(result, "allocate");
  return data;
}

void free(void* data) { check(cudaFree(data), "free"); }

void copy(void* to, bool to_device, const void* from, bool from_device, int64_t bytes) {
  constexpr cudaMemcpyKind from_host[] = {cudaMemcpyHostToHost, cudaMemcpyHostToDevice};
  constexpr cudaMemcpyKind from_card[] = {cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};
  const cudaMemcpyKind kind = (from_device ? from_card : from_host)[to_device];
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream()), "copy");
  if (!to_device || !from_device) check(cudaStreamSynchronize(stream()), "copy");
}

void zero(void* data, int64_t bytes) { check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream()), "zero"); }

void synchronize() { check(cudaStreamSynchronize(stream()), "synchronize"); }

Workspace::Workspace(int64_t bytes) : lock_(scratch().mutex) {
  Scratch& block = scratch();
  if (bytes > block.bytes) {
    free(block.data);  // waits for the kernels that use it
    block.bytes = 0;
    block.data = allocate(bytes);
    if (!block.data)
      throw Error("workspace: out of memory on the device: asked for " + std::to_string(bytes) + " bytes");
    block.bytes = bytes;
  }
  data_ = block.data;
}

}  // namespace orrery::cuda
