// Allocations that the emulated GPU refuses: device memory and pinned host memory.
#pragma once

#include <atomic>
#include <cstdint>

namespace cuda_on_cpu {

struct FailingCalls {
  std::atomic<int64_t> calls = 0;  // number of calls so far; a test resets it to 0 before it begins
  int64_t at = 0;                  // number of the call that fails, from 1; 0: none
  bool lasting = false;            // all later calls fail too

  bool next_fails() {
    const int64_t n = ++calls;
    return at > 0 && (lasting ? n >= at : n == at);
  }
};
inline FailingCalls device_allocations, pinned_allocations;

}  // namespace cuda_on_cpu
