// Numbers of blocks and threads that the loops launch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/runtime/launch.cuh"

namespace orrery::cuda {

inline constexpr int loop_threads = 256;  // per block, in every loop
inline constexpr int loop_warps = loop_threads / 32;
inline constexpr int64_t max_blocks = 2048;  // more than any GPU runs at once; blocks loop over the rest

// Returns the number of blocks for `items` units of work, one per block and iteration.
inline unsigned blocks_for(int64_t items) { return static_cast<unsigned>(std::min(items, max_blocks)); }
inline int64_t ceil_div(int64_t n, int64_t size) { return n / size + (n % size != 0); }

}  // namespace orrery::cuda
