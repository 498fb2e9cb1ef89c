// One buffer on one device, from a caching allocator: freed blocks are kept by size class, because on a CPU the page
// faults of fresh memory cost more than the arithmetic that is done in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "engine/device.h"

namespace orrery {

class Buffer {
 public:
  Buffer(Device device, int64_t bytes);  // contents undefined (NaN in debug builds); 64-byte aligned
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  std::byte* data() { return static_cast<std::byte*>(data_); }

  // Counts changes in place, so that backward can tell that a value it kept is no longer the value that was used.
  std::atomic<uint64_t> version = 0;

 private:
  Device device_;
  int64_t bytes_;
  void* data_;
};

struct MemoryUse {
  int64_t held = 0;    // bytes in live buffers
  int64_t peak = 0;    // the most that `held` has been since the last reset
  int64_t cached = 0;  // bytes of freed blocks kept for reuse
};
MemoryUse memory_use(Device device);
void reset_peak(Device device);
void release_cached(Device device);                   // gives the kept blocks back to the system
void set_memory_limit(Device device, int64_t bytes);  // 0: none.  Beyond it an allocation is an Error

// Copies bytes between two buffers' memories, whatever their devices.
void copy_bytes(Device to_device, void* to, Device from_device, const void* from, int64_t bytes);
void zero_bytes(Device device, void* data, int64_t bytes);

}  // namespace orrery
