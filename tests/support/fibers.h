// A fiber: a stack of its own, and the change from one stack to another.  AddressSanitizer is told of every change;
// ThreadSanitizer sees each fiber as a thread, and a change orders nothing: only acquire and release do.
#pragma once

#include <cstddef>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Makes the next change to this fiber start `entry`, which must not return.  A fiber that is abandoned in the middle
  // of its work is prepared anew.  Different indices keep the tops of stacks apart in the processor's cache.
  void prepare(int index, void (*entry)());
  void adopt_os_thread();  // this object stands for the calling OS thread

  static void change(Fiber& from, Fiber& to);
  static void started();  // the first call of `entry`

  // What `fiber`, which will never run again, did so far happened before what the caller does next.
  static void abandon(Fiber& fiber, Fiber& caller, void* clock);

 private:
  char* stack_ = nullptr;  // the lowest address
  size_t bytes_ = 0;
  bool owned_ = false;
  void *asan_ = nullptr, *tsan_ = nullptr;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

// What was done before release(clock) is seen after acquire(clock).
void acquire(void* clock);
void release(void* clock);

// Touching this memory is an error from now on, where AddressSanitizer watches; false where it does not.
bool forbid(const void* data, size_t bytes);
void allow(const void* data, size_t bytes);

}  // namespace cuda_on_cpu
