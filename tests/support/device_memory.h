// The memory of the emulated device. Only kernels, copies and fills can access it, so a host that
// dereferences a device pointer crashes here as it does with a GPU.
//
// Guards separate blocks. They hold NaN for reads out of range and are checked after every
// kernel, as are freed blocks. A fresh block is uninitialized (never_set).
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace cuda_on_cpu {

class DeviceMemory {
 public:
  class Open {  // opens the memory for one thread while it exists
   public:
    Open();
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
    DeviceMemory* operator->() const;

   private:
    std::unique_lock<std::mutex> lock_;
  };

  void* allocate(size_t bytes);                        // nullptr if options.memory would be exceeded
  bool free(void* data);                               // false if no block starts there
  bool holds(const void* data, size_t bytes) const;    // within one block
  bool touches(const void* data, size_t bytes) const;  // any address of the device
  static void close(bool closed) { instance().protect(closed); }  // to kernels too (early_launch.h)
  static bool owns(const void* data) { return instance().touches(data, 1); }  // valid while open
  size_t used() const { return used_; }                                       // bytes in blocks
  bool guards_hold();  // returns whether guards and freed blocks are unchanged since the last call; rewrites them

 private:
  DeviceMemory();
  static DeviceMemory& instance();
  void protect(bool forbidden);
  void write_guard(size_t begin, size_t end);
  bool guard_holds(size_t begin, size_t end) const;
  void forget_freed(size_t begin, size_t end);
  bool is_never_set(size_t begin, size_t bytes) const;

  std::mutex mutex_;
  unsigned char* base_ = nullptr;
  size_t reached_ = 0;               // no block ends beyond this
  size_t used_ = 0;                  // bytes in blocks
  std::map<size_t, size_t> blocks_;  // offset from base_ -> bytes
  std::map<size_t, size_t> freed_;   // offset from base_ -> bytes, not allocated again since
};

}  // namespace cuda_on_cpu
