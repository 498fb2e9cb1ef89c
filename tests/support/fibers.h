// A fiber: its own stack and the switch between stacks. AddressSanitizer is notified of each one.
// ThreadSanitizer treats a fiber as a thread; only acquire and release order its memory accesses.
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

  // Makes the next switch to this fiber start `entry`, which must not return. Call it again for an
  // abandoned fiber. Each index shifts the top of the stack to avoid cache conflicts.
  void prepare(int index, void (*entry)());
  void adopt_os_thread();  // this object represents the calling OS thread

  static void change(Fiber& from, Fiber& to);
  static void started();  // call first in `entry`

  // Orders everything that `fiber` did before the caller's next actions; `fiber` never runs again.
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

// Everything done before release(clock) is visible after acquire(clock).
void acquire(void* clock);
void release(void* clock);

// While it lives, ThreadSanitizer ignores the memory accesses of the running fiber: those of the
// emulation and of hardware, which are not the CUDA thread's. No other fiber may run meanwhile.
class NotOfThread {
 public:
  NotOfThread();
  ~NotOfThread();
  NotOfThread(const NotOfThread&) = delete;
};

// Makes an access to this memory an error; returns false if AddressSanitizer is not active.
bool forbid(const void* data, size_t bytes);
void allow(const void* data, size_t bytes);

}  // namespace cuda_on_cpu
