#include "tests/fuzz/memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/support/sanitizers.h"

#if ORRERY_ADDRESS_SANITIZER
// From <sanitizer/allocator_interface.h>, which g++ does not install.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_allocation)(const volatile void*, size_t),
                                              void (*on_free)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* data);
}
#endif

namespace fuzz {
namespace {

std::atomic<size_t> held = 0, peak = 0;

void count(size_t bytes) {
  const size_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  size_t before = peak.load(std::memory_order_relaxed);
  while (before < now && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}
void uncount(size_t bytes) { held.fetch_sub(bytes, std::memory_order_relaxed); }

}  // namespace

size_t memory_held() { return held; }
void reset_memory_peak() { peak = held.load(); }
size_t memory_peak() { return peak; }

}  // namespace fuzz

#if ORRERY_ADDRESS_SANITIZER

namespace {
void on_allocation(const volatile void*, size_t size) { fuzz::count(size); }
void on_free(const volatile void* data) {
  if (data) fuzz::uncount(__sanitizer_get_allocated_size(data));
}
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(on_allocation, on_free);
}  // namespace

#else

// The C library lets a program replace these functions; its own have other names too.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* data, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* data);

static void* counted(void* data) {
  if (data) fuzz::count(malloc_usable_size(data));
  return data;
}
void* malloc(size_t size) { return counted(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }
void* memalign(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size)); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** data, size_t alignment, size_t size) {
  *data = memalign(alignment, size);
  return *data ? 0 : ENOMEM;
}
void free(void* data) {
  if (data) fuzz::uncount(malloc_usable_size(data));
  __libc_free(data);
}
void* realloc(void* data, size_t size) {
  const size_t before = data ? malloc_usable_size(data) : 0;
  void* const moved = __libc_realloc(data, size);
  if (moved || size == 0) fuzz::uncount(before);
  return counted(moved);
}
}

#endif
