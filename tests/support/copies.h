// How often the host read the device's memory since the program began: what a step of training must not do.
#pragma once

#include <atomic>
#include <cstdint>

namespace cuda_on_cpu {

extern std::atomic<int64_t> copies_to_host;

}  // namespace cuda_on_cpu
