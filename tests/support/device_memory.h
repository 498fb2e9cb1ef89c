// The memory of the emulated device.  Outside of kernels, copies and fills nobody can read or write it, so that a host
// that follows a device pointer faults here as it does with a card.
//
// Between blocks lie guards: NaN to who reads too far, and checked after every kernel, as is what was freed.  A fresh
// block is as if never set.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace cuda_on_cpu {

class DeviceMemory {
 public:
  class Open {  // the memory can be touched while this lives; one thread at a time
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
  static bool owns(const void* data) { return instance().touches(data, 1); }  // while it is open
  size_t used() const { return used_; }                // bytes in blocks
  bool guards_hold();  // whether no guard and nothing freed was overwritten since the last call; writes them anew

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
  std::map<size_t, size_t> blocks_;  // bytes by the place where the block begins, relative to base_
  std::map<size_t, size_t> freed_;   // blocks as well, whose memory nobody was given since
};

}  // namespace cuda_on_cpu
