// The number of copies from device to host since program start. A training step must make none.
#pragma once

#include <atomic>
#include <cstdint>

namespace cuda_on_cpu {

extern std::atomic<int64_t> copies_to_host;

}  // namespace cuda_on_cpu
