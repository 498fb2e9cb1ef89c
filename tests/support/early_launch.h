// Early launch (cuda/runtime/launch.cuh). The emulated device runs kernels one after another, so a
// kernel without its wait gives the right results. With `options.closed_memory` device memory is
// closed to a block until all of its threads have called wait_for_earlier(), one block at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace cuda_on_cpu {

// Numbers of launches since program start: all of them, and those that may start early.
extern std::atomic<int64_t> launches, early_launches;

// While it exists, an access to closed memory is recorded and opens the memory.
class ClosedMemory {
 public:
  ClosedMemory();
  ~ClosedMemory();
  ClosedMemory(const ClosedMemory&) = delete;

  static void close();
  static void open();  // idempotent
  static bool was_accessed();  // returns whether it was accessed since close()
  // Accesses device memory if it is closed: by a copy that starts now and may land after the wait.
  static void access(const void* data);
};

}  // namespace cuda_on_cpu
