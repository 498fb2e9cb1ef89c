// Memory and work queue of a GPU, for plain C++: this header uses no CUDA header.
//
// All work is queued on one CUDA stream; a thread that captures a CUDA graph has its own. A failed
// call throws a MachineError that names the operation, the source location and the launch shape.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/system/pool.h"

namespace orrery::cuda {

int device_count();  // 0 without a GPU or without a driver

struct DeviceProperties {
  std::string name;
  int major, minor;  // compute capability
  int multiprocessors;
  int64_t memory;            // bytes
  int64_t shared_memory;     // bytes, maximum per block
  double clock = 0;          // maximum of the multiprocessors, in Hz; 0: unknown
  bool warp_groups = false;  // runs code for 90a: cuda/matmul/warp_group.cuh
  int code = 0;              // compute capability of the code that it runs, 90 for 9.0
  int driver = 0;            // latest CUDA version that the driver supports, 12030 for 12.3

  bool launches_early() const;  // returns whether kernels start early: cuda/runtime/launch.cuh
};
std::string description(const DeviceProperties& gpu);  // one line: name, size, how kernels start
// Returns the GPU in use. Throws a MachineError if there is none, if its compute capability is below
// 8.0 (the kernels' minimum), or if the program has no code for it.
const DeviceProperties& device_properties();
void check_supported(const DeviceProperties& gpu);  // throws the last two of these errors
int64_t free_memory();                              // bytes
bool started();                                     // true once work has been queued

// ---- memory

// Allocates device memory for pools. Returns nullptr if none is left.
void* allocate(int64_t bytes);
void free(void* data);

// Returns the pool for this thread's blocks, which are aligned to 256 bytes. Only work that is
// queued later reuses a freed block, so no wait is needed.
std::shared_ptr<Pool> pool();

// Copies `bytes` bytes. Copies to or from the host are complete on return, others are queued.
void copy(void* to, bool to_device, const void* from, bool from_device, int64_t bytes);
void zero(void* data, int64_t bytes);  // queued

void synchronize();  // returns when all queued work is done

// Scratch memory for the kernels that are launched while this object lives.
class Workspace {
 public:
  explicit Workspace(int64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  void* data() const { return data_; }

 private:
  std::shared_ptr<Pool> pool_;
  void* data_;
};

// ---- without waiting

std::shared_ptr<Pool> page_locked_pool();  // of host memory
// Page-locked host memory for asynchronous copies to and from the device.
class Pinned {
 public:
  explicit Pinned(int64_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  void* data() const { return data_; }

  void send(void* to, int64_t bytes);           // queued: to the device
  void fetch(const void* from, int64_t bytes);  // queued: from the device
  void wait() const;                            // returns when the latest copy is done

 private:
  void* data_;
  void* event_;
};

// CUDA graphs, for class Graph of engine/tensor/staging.h. `record` calls `work` once and captures
// it; only `replay` runs it, so it must not wait for the device. `work` allocates from `pool`,
// which belongs to the graph until `destroy_graph`: it keeps all of its blocks, even freed ones.
std::shared_ptr<Pool> new_pool();
void* record(const std::shared_ptr<Pool>& pool, const std::function<void()>& work);
void replay(void* graph);
void destroy_graph(void* graph);  // waits for the replays

}  // namespace orrery::cuda
