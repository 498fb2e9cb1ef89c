// A buffer of bytes on one device, and the device's memory: its pool, limits and copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/system/pool.h"
#include "engine/types/device.h"

namespace orrery {

class Buffer {
 public:
  Buffer(Device device, int64_t bytes);  // contents undefined (NaN in debug builds); 64-byte aligned
  Buffer(Device device, int64_t bytes, std::shared_ptr<Pool> pool);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Device device() const { return device_; }
  int64_t bytes() const { return bytes_; }
  std::byte* data() { return static_cast<std::byte*>(data_); }

  // Number of changes in place; backward compares it, to detect a change of a saved value.
  std::atomic<uint64_t> version = 0;

 private:
  Device device_;
  int64_t bytes_;
  std::shared_ptr<Pool> pool_;
  void* data_;
};

MemoryUse memory_use(Device device);
void reset_peak(Device device);                       // of memory_use, to the bytes allocated now
void release_cached(Device device);                   // returns free blocks to the system
void set_memory_limit(Device device, int64_t bytes);  // 0: none. Beyond it an allocation throws
int64_t memory_limit(Device device);
// Returns the bytes that can still be allocated, by the limit and the device's free memory.
int64_t free_memory(Device device);

// Copies bytes between two buffers on any devices.
void copy_bytes(Device to_device, void* to, Device from_device, const void* from, int64_t bytes);
void zero_bytes(Device device, void* data, int64_t bytes);
void synchronize();                            // returns when all queued work of all devices is done
Device parse_device(const std::string& name);  // "cpu" or "cuda"
// Throws, with advice, unless tensors can be on this device.
void check_available(Device device);
// Returns one line about the GPU in use, with how it starts kernels; "" for the CPU.
std::string description(Device device);

}  // namespace orrery
