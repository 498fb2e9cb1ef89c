// Memory that the emulated card refuses: of the device, and of the host that it copies from.
#pragma once

#include <atomic>
#include <cstdint>

namespace cuda_on_cpu {

struct FailingCalls {
  std::atomic<int64_t> calls = 0;  // so far; a test sets it to 0 before it begins
  int64_t at = 0;                  // the call that fails, from 1; 0: none
  bool lasting = false;            // and all after it

  bool next_fails() {
    const int64_t n = ++calls;
    return at > 0 && (lasting ? n >= at : n == at);
  }
};
inline FailingCalls device_allocations, pinned_allocations;

}  // namespace cuda_on_cpu
