// Defines the functions that g++ calls before loads and stores in files compiled with
// -fsanitize=kernel-address (sectors.h); no other file calls them. AddressSanitizer brings its own.
#include "tests/support/sectors.h"

#if !defined(__SANITIZE_ADDRESS__)

extern "C" {
#define ORRERY_ACCESS(name, bytes)                                        \
  void __asan_load##name##_noabort(const void* data) {                    \
    cuda_on_cpu::record_access(data, bytes, __builtin_return_address(0)); \
  }                                                                       \
  void __asan_store##name##_noabort(const void* data) {                   \
    cuda_on_cpu::record_access(data, bytes, __builtin_return_address(0)); \
  }
ORRERY_ACCESS(1, 1)
ORRERY_ACCESS(2, 2)
ORRERY_ACCESS(4, 4)
ORRERY_ACCESS(8, 8)
ORRERY_ACCESS(16, 16)
#undef ORRERY_ACCESS
void __asan_loadN_noabort(const void* data, size_t bytes) {
  cuda_on_cpu::record_access(data, bytes, __builtin_return_address(0));
}
void __asan_storeN_noabort(const void* data, size_t bytes) {
  cuda_on_cpu::record_access(data, bytes, __builtin_return_address(0));
}
void __asan_handle_no_return() {}
void __asan_before_dynamic_init(const char*) {}
void __asan_after_dynamic_init() {}
}

#endif
