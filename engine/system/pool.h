// A caching allocator over memory that somebody else gives: freed blocks are kept by size class, because fresh memory
// costs more than the arithmetic that is done in it.  The engine has one for each device; a recorded step has its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace orrery {

struct MemoryUse {
  int64_t held = 0;     // bytes in live blocks
  int64_t peak = 0;     // the most that `held` has been since the last reset
  int64_t cached = 0;   // bytes of freed blocks kept for reuse
  int64_t refused = 0;  // requests that could not be met
};

class Pool {
 public:
  struct Source {
    void* (*allocate)(int64_t bytes);  // nullptr if there is no more
    void (*free)(void* data);
    bool lasting = false;  // nothing goes back before the pool ends: work that was recorded uses the kept blocks again
  };
  explicit Pool(Source source);
  ~Pool();  // gives everything back, also what is still held
  Pool(const Pool&) = delete;

  // The bytes of the block that a request of so many gets: at most 12.5 % more, from 512 bytes on.  Errors: none; at
  // most `largest_size`.
  static int64_t block_size(int64_t bytes);
  // nullptr if there is no more, or if it would go beyond the limit; what is cached has been given back by then.
  // `holder` stands for as long as the block is held: an operation's name.
  void* take(int64_t bytes, const char* holder);
  void give(void* data) noexcept;  // allocates nothing: destructors call it

  void release();                 // gives the kept blocks back to the source
  void set_limit(int64_t bytes);  // 0: none
  int64_t limit() const;
  MemoryUse use() const;
  void reset_peak();
  // "3.2 GB held, 0.1 GB kept for reuse, limit 4.0 GB; the largest holders: linear 2.0 GB in 24 blocks, ..."
  std::string description() const;

 private:
  struct State;  // in the source file: every file that has a tensor reads this one
  const std::unique_ptr<State> state_;
};

// The operation that this thread is doing: who holds what it allocates.  "" outside of all.
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
