// A caching allocator. It keeps freed blocks by size class, because fresh memory costs more than
// the arithmetic on it. Each device has a pool, and so has each captured CUDA graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace orrery {

struct MemoryUse {
  int64_t allocated = 0;  // bytes in live blocks
  int64_t peak = 0;       // largest `allocated` since the last reset
  int64_t cached = 0;     // bytes in freed blocks that are kept for reuse
  int64_t refused = 0;    // failed requests
};

class Pool {
 public:
  struct Source {
    void* (*allocate)(int64_t bytes);  // nullptr: no memory is left
    void (*free)(void* data);
    // true: frees nothing before the pool ends, because CUDA graph replays use the blocks again.
    bool keeps_blocks = false;
  };
  explicit Pool(Source source);
  ~Pool();  // frees all blocks, also those still held
  Pool(const Pool&) = delete;

  // Returns the block size in bytes for a request: at most 12.5 % more, from 512 bytes on. Never
  // throws; `bytes` is at most `max_elements`.
  static int64_t block_size(int64_t bytes);
  // Returns nullptr if the source has no more memory or the limit is reached, even after freeing
  // all cached blocks. `holder`, an operation's name, must outlive the block.
  void* take(int64_t bytes, const char* holder);
  void give(void* data) noexcept;  // never allocates: destructors call it

  void release();                 // returns the free blocks to the source
  void set_limit(int64_t bytes);  // 0: no limit
  int64_t limit() const;
  MemoryUse use() const;
  void reset_peak();
  // "3.2 GB in use, 0.1 GB cached for reuse, limit 4.0 GB; the largest uses: linear 2.0 GB in 24 blocks, ..."
  std::string description() const;

 private:
  struct State;  // defined in pool.cpp: every file with a tensor includes this header
  const std::unique_ptr<State> state_;
};

// Returns the operation that this thread runs, the holder of its allocations; "" if there is none.
const char* current_operation();
class CurrentOperation {
 public:
  explicit CurrentOperation(const char* name);
  ~CurrentOperation();
  CurrentOperation(const CurrentOperation&) = delete;

 private:
  const char* before_;
};

}  // namespace orrery
