#include "tests/support/fibers.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

extern "C" {  // null unless linked with the sanitizer
__attribute__((weak)) void __sanitizer_start_switch_fiber(void**, const void*, size_t);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
__attribute__((weak)) void __asan_poison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned);
__attribute__((weak)) void __tsan_destroy_fiber(void*);
__attribute__((weak)) void __tsan_switch_to_fiber(void*, unsigned);
__attribute__((weak)) void __tsan_acquire(void*);
__attribute__((weak)) void __tsan_release(void*);
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char*, int);
__attribute__((weak)) void AnnotateIgnoreReadsEnd(const char*, int);
}

#if defined(__x86_64__)
// Pushes the callee-saved registers, switches stacks, and returns on the other stack.
extern "C" void cuda_on_cpu_change_stack(void** save, void* load);
asm(R"(
.text
.type cuda_on_cpu_change_stack, @function
cuda_on_cpu_change_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_on_cpu_change_stack, . - cuda_on_cpu_change_stack
)");
#endif

namespace cuda_on_cpu {
namespace {
constexpr size_t page = 4096, stack_bytes = 256 * 1024;  // untouched pages cost nothing
constexpr unsigned orders_nothing = 1;
}  // namespace

Fiber::~Fiber() {
  if (!owned_) return;
  if (tsan_) __tsan_destroy_fiber(tsan_);
  munmap(stack_ - page, page + bytes_);
}

void Fiber::prepare(int index, void (*entry)()) {
  if (owned_) {  // an abandoned fiber
    allow(stack_, bytes_);
    if (tsan_) __tsan_destroy_fiber(tsan_);
  } else {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const base = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    mprotect(base, page, PROT_NONE);  // an overflow stops the program and does not reach the adjacent stack
    stack_ = static_cast<char*>(base) + page;
    bytes_ = stack_bytes;
    owned_ = true;
  }
  if (__tsan_create_fiber) tsan_ = __tsan_create_fiber(0);
  const size_t usable = bytes_ - static_cast<size_t>(index % 61) * 576;
#if defined(__x86_64__)
  void** const top = reinterpret_cast<void**>(stack_ + usable);
  constexpr int preserved = 6;
  top[-1] = nullptr;  // return address of entry
  top[-2] = reinterpret_cast<void*>(entry);
  std::fill_n(top - 2 - preserved, preserved, nullptr);
  stack_pointer_ = top - 2 - preserved;
#else
  getcontext(&context_);
  context_.uc_stack = {stack_, 0, usable};
  makecontext(&context_, entry, 0);
#endif
}

void Fiber::adopt_os_thread() {
  pthread_attr_t attributes;
  void* base = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &base, &bytes_);
  pthread_attr_destroy(&attributes);
  stack_ = static_cast<char*>(base);
  if (__tsan_get_current_fiber) tsan_ = __tsan_get_current_fiber();
}

void Fiber::change(Fiber& from, Fiber& to) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(&from.asan_, to.stack_, to.bytes_);
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(to.tsan_, orders_nothing);
#if defined(__x86_64__)
  cuda_on_cpu_change_stack(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(from.asan_, nullptr, nullptr);
}

void Fiber::started() {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
}

void Fiber::abandon(Fiber& fiber, Fiber& caller, void* clock) {
  if (!fiber.tsan_) return;
  __tsan_switch_to_fiber(fiber.tsan_, orders_nothing);
  release(clock);
  __tsan_switch_to_fiber(caller.tsan_, orders_nothing);
  acquire(clock);
}

void acquire(void* clock) {
  if (__tsan_acquire) __tsan_acquire(clock);
}
void release(void* clock) {
  if (__tsan_release) __tsan_release(clock);
}

NotOfThread::NotOfThread() {  // ThreadSanitizer ignores writes as well
  if (AnnotateIgnoreReadsBegin) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
}
NotOfThread::~NotOfThread() {
  if (AnnotateIgnoreReadsEnd) AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

bool forbid(const void* data, size_t bytes) {
  if (!__asan_poison_memory_region) return false;
  __asan_poison_memory_region(data, bytes);
  return true;
}
void allow(const void* data, size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(data, bytes);
}

}  // namespace cuda_on_cpu
