// How many blocks the loops launch, and of how many threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/runtime/launch.cuh"

namespace orrery::cuda {

inline constexpr int loop_threads = 256;  // of a block, in every loop
inline constexpr int loop_warps = loop_threads / 32;
inline constexpr int64_t most_blocks = 2048;  // more than any card runs at once; beyond it blocks take turns

// Blocks for so many pieces of work, one piece per block and turn.
inline unsigned blocks_for(int64_t pieces) { return static_cast<unsigned>(std::min(pieces, most_blocks)); }
inline int64_t pieces_of(int64_t n, int64_t size) { return n / size + (n % size != 0); }

}  // namespace orrery::cuda
