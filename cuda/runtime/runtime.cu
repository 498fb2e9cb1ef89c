#include "cuda/runtime/runtime.h"

#include <atomic>
#include <mutex>
#include <string_view>
#include <utility>

#include "cuda/runtime/launch.cuh"
#include "engine/types/machine_error.h"

namespace orrery::cuda {
namespace {

// The latest launch, for errors: a kernel runs after its launch, so a later call reports its fault.
class LatestLaunch {
 public:
  void set(const Launch& launch) {
    const std::lock_guard lock(mutex_);
    launch_ = launch, operation_ = current_operation();
  }
  std::pair<Launch, const char*> get() {
    const std::lock_guard lock(mutex_);
    return {launch_, operation_};
  }

 private:
  std::mutex mutex_;
  Launch launch_{"", 0, 0, 0, "", 0};
  const char* operation_ = "";  // the operation that launched it
};
LatestLaunch& latest_launch() {
  static LatestLaunch latest;
  return latest;
}

std::string dims_text(const dim3& d, const char* unit) {
  std::string text = std::to_string(d.x);
  if (d.y > 1 || d.z > 1) text += " x " + std::to_string(d.y);
  if (d.z > 1) text += " x " + std::to_string(d.z);
  return text + unit + (text == "1" ? "" : "s");
}
// Returns "cuda/attention/attention.cuh:88", regardless of the folder of the sources.
std::string location(std::string_view file, int line) {
  const size_t folder = file.rfind("/cuda/");
  if (folder != file.npos) file.remove_prefix(folder + 1);
  return std::string(file) + ":" + std::to_string(line);
}
std::string shape(const Launch& launch) {
  return "launched with " + dims_text(launch.grid, " block") + " of " + dims_text(launch.block, " thread") +
         (launch.shared_bytes ? " and " + std::to_string(launch.shared_bytes) + " bytes of shared memory" : "");
}

// Returns "map" or "map of gelu": the kernel and the operation that launched it.
std::string kernel_name(const Launch& launch, const char* operation) {
  return launch.name + (*operation ? " of " + std::string(operation) : "");
}

bool no_device(cudaError_t result) { return result == cudaErrorNoDevice || result == cudaErrorInsufficientDriver; }
// Returns what a user can do about the error.
std::string way_out(cudaError_t result) {
  if (no_device(result)) return "; install its driver, or use --device=cpu";
  if (result == cudaErrorMemoryAllocation) return "; use a smaller batch or model";
  if (result == cudaErrorNoKernelImageForDevice) return "; build the program for this GPU, or use --device=cpu";
  // A refused launch is refused again; other errors end the process's use of the GPU, and may not recur.
  const bool refused = result == cudaErrorInvalidValue || result == cudaErrorLaunchOutOfResources;
  return refused ? "; use --device=cpu" : "; start again, or use --device=cpu";
}

void check(cudaError_t result, const char* operation, int line = __builtin_LINE()) {
  if (result == cudaSuccess) return;
  std::string message = std::string(operation) + ": ";
  const std::string name = cudaGetErrorName(result);
  message += no_device(result) ? "no GPU is available (" + name + ")" : name + " at " + location(__FILE__, line);
  if (const auto [latest, of] = latest_launch().get(); latest.line)
    message += "; the last kernel was " + kernel_name(latest, of) + " at " + location(latest.file, latest.line) + ", " +
               shape(latest) + "; set CUDA_LAUNCH_BLOCKING=1 to get the error from the kernel that causes it";
  throw MachineError(message + way_out(result));
}

// Set while this thread captures a CUDA graph. The capture has its own CUDA stream: other threads
// use the process's CUDA stream, so their work runs at once and is not captured.
thread_local std::shared_ptr<Pool> graph_pool;
thread_local cudaStream_t graph_stream = nullptr;

// A kernel for all architectures. Its launch bound shows whether the GPU runs the code for 90a.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr int empty_kernel_bound = 128;
#else
constexpr int empty_kernel_bound = 32;
#endif
__global__ void __launch_bounds__(empty_kernel_bound) empty_kernel() {}
cudaError_t find_code(cudaFuncAttributes* attributes) { return cudaFuncGetAttributes(attributes, empty_kernel); }

DeviceProperties query_device() {
  int device = 0;
  check(cudaGetDevice(&device), "start");
  cudaDeviceProp found;
  check(cudaGetDeviceProperties(&found, device), "start");
  int kilohertz = 0;
  check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device), "start");
  DeviceProperties gpu = {found.name,
                          found.major,
                          found.minor,
                          found.multiProcessorCount,
                          static_cast<int64_t>(found.totalGlobalMem),
                          static_cast<int64_t>(found.sharedMemPerBlockOptin),
                          kilohertz * 1e3};
  check_supported(gpu);
  cudaFuncAttributes attributes;
  check(find_code(&attributes), "start");
  gpu.warp_groups = attributes.maxThreadsPerBlock > 32;
  gpu.code = attributes.ptxVersion;  // of the PTX that this code was made from, even if the driver compiled it
  check(cudaDriverGetVersion(&gpu.driver), "start");
  return gpu;
}

}  // namespace

void check(cudaError_t result, const Launch& launch) {
  if (result == cudaSuccess) return latest_launch().set(launch);
  throw MachineError(kernel_name(launch, current_operation()) + ": " + cudaGetErrorName(result) + " at " +
                     location(launch.file, launch.line) + ", " + shape(launch) + way_out(result));
}

namespace {
std::atomic<bool> stream_exists = false;
cudaStream_t new_stream(const char* operation) {
  cudaStream_t made;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), operation);
  return made;
}
cudaStream_t process_stream() {
  static const cudaStream_t instance = [] {
    device_properties();
    const cudaStream_t made = new_stream("start");
    stream_exists = true;
    return made;
  }();
  return instance;
}
}  // namespace
cudaStream_t stream() { return graph_stream ? graph_stream : process_stream(); }
bool started() { return stream_exists; }

int device_count() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  cudaGetLastError();  // clears the error, which the next call would report
  if (!no_device(result)) check(result, "device count");
  return 0;
}

namespace {
// Returns true if the program has code for the GPU in use: one kernel is queried for all.
bool has_code() {
  cudaFuncAttributes attributes;
  const cudaError_t result = find_code(&attributes);
  if (result == cudaSuccess) return true;
  cudaGetLastError();  // clears the error, which the next call would report
  if (result != cudaErrorNoKernelImageForDevice && result != cudaErrorInvalidDeviceFunction &&
      result != cudaErrorUnsupportedPtxVersion)
    check(result, "start");
  return false;
}
std::string capability_text(const DeviceProperties& gpu) {
  return std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
}
}  // namespace
// Code for older GPUs has no waits, and a capture by an older driver loses the edges of early launch.
bool DeviceProperties::launches_early() const { return code >= 90 && driver >= 12030; }
std::string description(const DeviceProperties& gpu) {
  const std::string missing = gpu.code < 90 ? "code for compute capability 9.0 or later" : "a driver for CUDA 12.3";
  return gpu.name + ", compute capability " + capability_text(gpu) + ", " + std::to_string(gpu.multiprocessors) +
         " multiprocessors; kernels start " +
         (gpu.launches_early() ? "early" : "one after another: an early start needs " + missing);
}
void check_supported(const DeviceProperties& gpu) {
  constexpr int oldest = 8;
  const std::string capability = capability_text(gpu);
  if (gpu.major < oldest)
    throw MachineError("start: the GPU " + gpu.name + " has compute capability " + capability +
                       "; the kernels need 8.0 or later; use --device=cpu");
  if (has_code()) return;
  const bool has_warp_groups = gpu.major == 9 && gpu.minor == 0;
  const std::string architecture = std::to_string(gpu.major) + std::to_string(gpu.minor) + (has_warp_groups ? "a" : "");
  throw MachineError("start: this program has no code for the GPU " + gpu.name + " of compute capability " +
                     capability + "; it was built with CMAKE_CUDA_ARCHITECTURES=" ORRERY_CUDA_ARCHITECTURES
                     "; build it for this GPU with cmake -S . -B build -DORRERY_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=" +
                     architecture + " && cmake --build build --parallel; or use --device=cpu");
}
const DeviceProperties& device_properties() {
  static const DeviceProperties instance = query_device();  // if it throws, the next call tries again
  return instance;
}
void* allocate(int64_t bytes) {
  device_properties();  // throws if there is no GPU
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, which the next call would report
    return nullptr;
  }
  check(result, "allocate");
  return data;
}
void free(void* data) {
  if (stream_exists) check(cudaStreamSynchronize(process_stream()), "free");  // kernels may still use it
  check(cudaFree(data), "free");
}

int64_t free_memory() {
  size_t free = 0, all = 0;
  check(cudaMemGetInfo(&free, &all), "free memory");
  return static_cast<int64_t>(free);
}

std::shared_ptr<Pool> new_pool() {
  return std::make_shared<Pool>(Pool::Source{.allocate = allocate, .free = cuda::free, .keeps_blocks = true});
}

std::shared_ptr<Pool> pool() {
  // Never destroyed: at exit the driver may already be unloaded.
  static const auto* const instance =
      new auto(std::make_shared<Pool>(Pool::Source{.allocate = allocate, .free = cuda::free}));
  return graph_pool ? graph_pool : *instance;
}

void copy(void* to, bool to_device, const void* from, bool from_device, int64_t bytes) {
  constexpr cudaMemcpyKind from_host[] = {cudaMemcpyHostToHost, cudaMemcpyHostToDevice};
  constexpr cudaMemcpyKind from_gpu[] = {cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};
  const cudaMemcpyKind kind = (from_device ? from_gpu : from_host)[to_device];
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream()), "copy");
  if (!to_device || !from_device) check(cudaStreamSynchronize(stream()), "copy");
}

void zero(void* data, int64_t bytes) { check(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream()), "zero"); }

void synchronize() { check(cudaStreamSynchronize(stream()), "synchronize"); }

Workspace::Workspace(int64_t bytes) : pool_(pool()), data_(pool_->take(bytes, "workspace")) {
  if (!data_)
    throw MachineError("workspace: out of memory on the GPU: " + std::to_string(bytes) + " bytes requested; " +
                       pool_->description() + "; use a smaller batch or model");
}
Workspace::~Workspace() { pool_->give(data_); }

// ---- without waiting

std::shared_ptr<Pool> page_locked_pool() {
  const auto allocate = [](int64_t bytes) -> void* {
    void* data = nullptr;
    if (cudaMallocHost(&data, static_cast<size_t>(bytes)) == cudaSuccess) return data;
    cudaGetLastError();
    return nullptr;
  };
  const auto free = [](void* data) { cudaFreeHost(data); };
  static const auto* const instance =
      new auto(std::make_shared<Pool>(Pool::Source{.allocate = allocate, .free = free}));
  return *instance;
}
Pinned::Pinned(int64_t bytes) {
  cudaEvent_t event;
  check(cudaMallocHost(&data_, static_cast<size_t>(bytes)), "pinned memory");
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "pinned memory");
  event_ = event;
}
Pinned::~Pinned() {  // results are ignored: at exit the driver may already be unloaded
  const auto event = static_cast<cudaEvent_t>(event_);
  cudaEventSynchronize(event);
  cudaEventDestroy(event);
  cudaFreeHost(data_);
}
void Pinned::send(void* to, int64_t bytes) {
  check(cudaMemcpyAsync(to, data_, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream()), "send");
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_), stream()), "send");
}
void Pinned::fetch(const void* from, int64_t bytes) {
  check(cudaMemcpyAsync(data_, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream()), "fetch");
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_), stream()), "fetch");
}
void Pinned::wait() const { check(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "wait"); }

namespace {
class GraphCapture {  // this thread's capture of a CUDA graph
 public:
  explicit GraphCapture(const std::shared_ptr<Pool>& pool) {
    if (graph_stream) throw Error("record: this thread already records a CUDA graph; finish it first");
    process_stream();
    stream_ = new_stream("record");
    // Relaxed: the pool may allocate memory during the capture.
    const cudaError_t result = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed);
    if (result != cudaSuccess) cudaStreamDestroy(stream_);
    check(result, "record");
    graph_stream = stream_, graph_pool = pool;
  }
  ~GraphCapture() {
    graph_stream = nullptr, graph_pool = nullptr;
    if (!ended_) end();
    if (graph_) cudaGraphDestroy(graph_);
    cudaStreamDestroy(stream_);
    cudaGetLastError();
  }
  GraphCapture(const GraphCapture&) = delete;
  cudaGraphExec_t finished() {
    check(end(), "record");
    cudaGraphExec_t graph;
    check(cudaGraphInstantiate(&graph, graph_, 0), "record");
    return graph;
  }

 private:
  cudaError_t end() {
    ended_ = true;
    return cudaStreamEndCapture(stream_, &graph_);
  }
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};
}  // namespace
void* record(const std::shared_ptr<Pool>& pool, const std::function<void()>& work) {
  GraphCapture capture(pool);
  work();
  return capture.finished();
}
void replay(void* graph) { check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream()), "replay"); }
void destroy_graph(void* graph) {
  cudaStreamSynchronize(process_stream());  // a replay may still read the pool's blocks
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace orrery::cuda
